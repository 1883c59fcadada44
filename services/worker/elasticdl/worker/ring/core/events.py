"""What the shell reports to the core of a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.shared.process.core_runner import TimerFired
from elasticdl.worker.ring.core.messages import Message, Round
from elasticdl.worker.ring.ports import BatchFacts, Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The member accepts connections. The first event; ``step``: of the state that it has already."""

    has_model: bool = False
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFormed:
    """The master has published a generation."""

    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReached:
    """The connection to the leader of a generation is there; also to one that this process wants to join."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost:
    """A connection of a generation has ended, or could not be made."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinerLost:
    """The connection of a joiner to this leader has ended."""

    generation: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """Another member of a generation has sent something, or a joiner, whose rank is beyond those of the members."""

    generation: int
    rank: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributed:
    """The worker has computed a batch, and its gradient is kept.

    Attributes:
        step: committed rounds in the state that the batch's round was read from.
        loads: states that had been loaded by then.
        round: the round of the batch.
    """

    step: int
    loads: int
    round: Round
    facts: BatchFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceFinished:
    """The sum of a round is complete here; ``gradient``: opaque, None for a round of empty batches."""

    generation: int
    step: int
    gradient: Any
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceFailed:
    """A neighbour was lost while the ring reduced; the ring's connections of this member are closed already."""

    generation: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReady:
    """This member leads, had no model, and has one now: restored or initialised."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoaded:
    """A copied state has replaced that of this member."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsChecked:
    """The state has ``step`` rounds, and these are the checksums of its tensors. All members report the same steps."""

    generation: int
    step: int
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """The worker ends: leave after the round that is reduced now."""


RingEvent = (
    Started
    | GenerationFormed
    | LeaderReached
    | PeerLost
    | JoinerLost
    | MessageReceived
    | Contributed
    | ReduceFinished
    | ReduceFailed
    | ModelReady
    | StateLoaded
    | WeightsChecked
    | LeaveRequested
    | TimerFired
)
FromGeneration = (
    LeaderReached | PeerLost | JoinerLost | ReduceFinished | ReduceFailed | WeightsChecked | MessageReceived
)
"""Events that count only in the generation that they name."""
