"""How a leader brings members of the next generation up to date while the rounds of the present one continue.

A joiner says where it is. It gets a copy of the state, then one result after the other; after each it says where it is
now. Once it is at most one round behind, it is told so, and asks the master to be a member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elasticdl.worker.ring.core.messages import Near, Result
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.core.results import Results

AWAY_ROUNDS = 50
"""Rounds whose results are kept for a joiner whose connection ended with its generation."""


@dataclass(slots=True, kw_only=True)
class _Joiner:
    """``needs``: the first step that it needs the result of; None: it can't catch up by results."""

    position: Position
    waits: bool = True
    needs: int | None = None
    has_copied: bool = False
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a joiner gets besides messages: a state, with at least ``since`` rounds."""

    since: int


class Joiners:
    """The joiners of one generation, by the rank that their connection has here: beyond those of its members."""

    def __init__(self) -> None:
        self._joiners: dict[int, _Joiner] = {}
        self._away: list[int] = []
        """What joiners need that are connected with the leader, or no longer because a generation has ended. They
        connect here in a moment if this member leads the next one."""
        self._lost: list[int] = []
        """What joiners need that were told that they are near, and whose connections have ended since. They probably
        come as members of the next generation."""

    @property
    def needed(self) -> tuple[int, ...]:
        """The first step that each joiner needs the result of."""
        return (*self._needs(), *self._away, *self._lost)

    @property
    def keep_from(self) -> int | None:
        """The first step whose result is needed."""
        return min(self.needed, default=None)

    def on_needed(self, steps: Sequence[int]) -> None:
        """Follower: the leader says what its joiners need."""
        self._away = list(steps)

    def on_hello(self, rank: int, position: Position) -> None:
        """A joiner says where it is."""
        joiner = self._joiners.setdefault(rank, _Joiner(position=position))
        if joiner.position != position:  # Otherwise what it needs is on its way.
            joiner.position, joiner.waits = position, True

    def on_lost(self, rank: int) -> None:
        """The connection of a joiner has ended."""
        joiner = self._joiners.pop(rank, None)
        if joiner is not None and joiner.is_told and joiner.needs is not None:
            self._lost.append(joiner.needs)

    def on_generation_ended(self) -> None:
        """Its connections end, too."""
        self._away += self._needs()
        self._joiners.clear()

    def on_joined(self, count: int) -> None:
        """The next generation has new members: they are no joiners any more."""
        if count >= len(self._away) + len(self._lost):
            self._away.clear()
            self._lost.clear()

    def serve(self, results: Results, present: Position) -> Iterator[tuple[int, Near | Result | Copy]]:
        """What each joiner gets now."""
        for rank, joiner in self._joiners.items():
            if not joiner.waits:
                continue
            missing = results.since(joiner.position, present)
            if missing is None and not joiner.has_copied:
                since = results.first_step(present) if self._is_copying else present.step
                joiner.has_copied, joiner.waits, joiner.needs = True, False, since
                yield rank, Copy(since=since)
                continue
            joiner.needs = None if missing is None else joiner.position.step
            # One that can't catch up copies the state while the generation is formed that it is in.
            if not joiner.is_told and (missing is None or len(missing) <= 1):
                joiner.is_told = True
                yield rank, Near()
            if missing:
                joiner.waits = False
                yield rank, missing[0]
        if len(self._joiners) >= len(self._away):
            self._away.clear()
        self._away = [step for step in self._away if present.step - step <= AWAY_ROUNDS]
        self._lost = [step for step in self._lost if present.step - step <= AWAY_ROUNDS]

    @property
    def _is_copying(self) -> bool:
        """Whether a joiner may be copying: it has not said where it is since it was given a copy or a later result."""
        return any(joiner.has_copied and not joiner.waits for joiner in self._joiners.values())

    def _needs(self) -> list[int]:
        return [joiner.needs for joiner in self._joiners.values() if joiner.needs is not None]
