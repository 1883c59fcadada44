"""How a leader brings all members of a new generation to the newest state."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from elasticdl.shared.errors import InvariantError
from elasticdl.worker.ring.core.joiners import Copy
from elasticdl.worker.ring.core.messages import Kind, Result, Want
from elasticdl.worker.ring.core.positions import Lack, Position, donor, lack
from elasticdl.worker.ring.core.results import Results
from elasticdl.worker.ring.ports import LEADER


class Verdict(Enum):
    """What the leader does next."""

    WAIT = "wait"
    LEAD = "lead"
    """No member has a model: make one."""
    OPEN = "open"
    """All states are equal."""


def wanted(kind: Kind, results: Results, own: Position) -> Result | Copy:
    """What a follower gives a leader that asks for it.

    Raises:
        InvariantError: it has promised a result that it does not have.
    """
    if kind is Kind.STATE:
        return Copy(since=own.step)
    if results.last is None:
        raise InvariantError("a result was promised and is not there")
    return results.last


class Formation:
    """Where the other members are, and what they are being sent."""

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}
        self._helped: set[int] = set()
        """Members that are being sent what they lack."""
        self._has_asked = False
        """Whether a follower sends what the leader lacks."""

    def on_hello(self, rank: int, position: Position) -> None:
        """A member says where it is."""
        if self._positions.get(rank) != position:
            self._helped.discard(rank)
        self._positions[rank] = position

    def clear(self) -> None:
        """The generation has ended, or is open."""
        self._positions.clear()
        self._helped.clear()
        self._has_asked = False

    def decide(
        self, own: Position, results: Results, size: int
    ) -> tuple[Verdict, Sequence[tuple[int, Want | Result | Copy]]]:
        """What the leader of ``size`` members at a position does, and gives to which rank."""
        if len(self._positions) < size - 1:
            return Verdict.WAIT, []
        positions = {LEADER: own, **self._positions}
        first = donor(positions)
        if not positions[first].has_model:
            return Verdict.LEAD, []
        if (needed := lack(own, positions[first])) is not Lack.NOTHING:
            has_asked, self._has_asked = self._has_asked, True
            return Verdict.WAIT, [] if has_asked else [(first, Want(kind=Kind(needed.value)))]
        return self._help(own, results)

    def _help(self, own: Position, results: Results) -> tuple[Verdict, Sequence[tuple[int, Want | Result | Copy]]]:
        given: list[tuple[int, Want | Result | Copy]] = []
        behind = 0
        for rank, position in self._positions.items():
            missing = results.since(position, own)
            behind += missing != []
            if missing != [] and rank not in self._helped:
                self._helped.add(rank)
                given.append((rank, missing[0] if missing else Copy(since=own.step)))
        return Verdict.WAIT if behind else Verdict.OPEN, given
