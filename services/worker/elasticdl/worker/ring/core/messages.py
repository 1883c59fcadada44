"""What the members of a generation tell each other. Followers talk to the leader, and the leader to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from elasticdl.shared.names import TaskId
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.ports import BatchFacts

BatchKey = tuple[TaskId, int]
"""A task and the number of one of its batches."""
Round = tuple[BatchKey, ...]
"""The batches of a round that the ledger lacks, in the order of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Follower or joiner to leader, in a new generation: where my state is. Sent again after it has changed."""

    position: Position


class Kind(Enum):
    """What a member can get from another one."""

    RESULT = "result"
    """The last committed round."""
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Leader to follower: your state is newer than mine, send me this."""

    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A committed round, for a member that lacks it.

    Attributes:
        before: the state that it was committed to.
        batches: as ``ReplicaState.apply`` takes them.
        gradient: the sum of the round, opaque here; None: all batches are empty.
        size_bytes: of the gradient, where it is kept.
    """

    before: Position
    batches: Sequence[BatchFacts]
    gradient: Any
    size_bytes: int = 0

    @property
    def step(self) -> int:
        """Committed rounds before it."""
        return self.before.step


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A whole state; ``parts``: what ``ReplicaState.save`` returned, opaque here."""

    position: Position
    parts: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Leader to a joiner: you are at most one round behind, or can't come nearer. Ask the master to be a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Follower to leader: the checksums of my weights after ``step`` rounds, one for each tensor."""

    step: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """Leader to follower: your weights were not those of the others. Copy the state.

    Attributes:
        tensor: number of the first tensor that differs.
    """

    step: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Leader to followers: all states are equal, so the generation works. They answer with their offers."""

    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Follower to leader: I have the gradient of a batch of the round that makes ``step + 1``."""

    step: int
    round: Round
    facts: BatchFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch of a round, and the rank of the member whose gradient counts."""

    rank: int
    facts: BatchFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Leader to followers: every batch of the round that makes ``step + 1`` is there. Reduce it.

    Attributes:
        entries: in the order of the plan.
        needed: the first step that each joiner needs the result of. All members keep the results, for the leader may
            die.
    """

    step: int
    entries: Sequence[Entry]
    needed: Sequence[int] = ()

    @property
    def batches(self) -> tuple[BatchFacts, ...]:
        """The round as ``ReplicaState.apply`` takes it."""
        return tuple(entry.facts for entry in self.entries)

    @property
    def has_gradient(self) -> bool:
        """Whether there is something to add up."""
        return any(not entry.facts.is_empty for entry in self.entries)


Message = Hello | Want | Result | State | Near | Weights | Differs | Opened | Offer | Go
