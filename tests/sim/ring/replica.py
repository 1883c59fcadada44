"""A toy replica: its content is the list of the rounds that it has committed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

from elasticdl.shared.names import TaskId
from elasticdl.worker.ring.core.messages import BatchKey, State
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.ports import BatchFacts

Committed = tuple[tuple[BatchKey, ...], tuple[int, tuple[BatchKey, ...]]]
"""A round: its batches, and the bits of its sum: the generation that reduced it, and what was added up."""


def facts_of(key: BatchKey) -> BatchFacts:
    """A batch with a gradient."""
    return BatchFacts(task=key[0], batch=key[1], batches=9, records=1, checksum=0, is_empty=False)


class Replica:
    """``history``: for each committed round its batches and the bits of its sum."""

    def __init__(self, *, rounds: int, width: int) -> None:
        self.rounds, self.width = rounds, width
        self.history: list[Committed] = []
        self.has_model = False
        self.error = 0
        """0: the weights are right."""

    @property
    def step(self) -> int:
        return len(self.history)

    @property
    def is_done(self) -> bool:
        return self.has_model and self.step == self.rounds

    @property
    def checksums(self) -> tuple[int, ...]:
        return (zlib.crc32(repr((self.history, self.error)).encode()),)

    def round_at(self, step: int) -> tuple[BatchKey, ...]:
        return tuple([(TaskId(task), step) for task in range(self.width)])

    def apply(self, batches: Sequence[BatchFacts], gradient: Any) -> None:
        keys = tuple([(facts.task, facts.batch) for facts in batches])
        if keys != self.round_at(self.step):
            raise AssertionError(f"step {self.step} absorbs {keys}")
        self.history.append((keys, gradient))


class Copied:
    """Copies of replicas by who has sent them in which generation: the memory of each may not be free yet."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, int], list[State]] = {}

    def take(
        self, sender: tuple[str, int], replica: Replica, position: Position, *, since: int, chance: random.Random
    ) -> State:
        """One with at least ``since`` rounds, or a new one."""
        states = self._states.setdefault(sender, [])
        usable = [state for state in states if state.position.step >= since]
        if usable and chance.random() < 0.5:
            return chance.choice(usable)
        states.append(State(position=position, parts=(list(replica.history), replica.error)))
        return states[-1]
