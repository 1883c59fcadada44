"""What the worker's core is told: the outcome of every command, and requests from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.process.core_runner import TimerFired
from elasticdl.worker.core.batch_order import BatchRef
from elasticdl.worker.core.tasks.leased import LeasedTask
from elasticdl.worker.failures import Failure
from elasticdl.worker.ps_client.requests import PushOutcome

NO_SECONDS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The model is built; the worker can start. ``notes``: start-up lines for the user."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The worker has to stop after its running batch; ``reason``: for the log, such as ``SIGTERM``."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDelivered:
    """The queue delivered tasks."""

    leases: tuple[LeasedTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEmpty:
    """The queue had no task; ``is_unavailable``: the broker did not answer; ask again after a pause."""

    is_unavailable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """A batch is read and fed, and its ids are known.

    Attributes:
        is_empty: the user's filter dropped every record; the batch needs no weights.
        seconds: phase -> seconds.
    """

    ref: BatchRef
    records: int
    checksum: int = 0
    is_empty: bool = False
    seconds: Mapping[str, float] = field(default_factory=lambda: NO_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchUnreadable:
    """Storage does not deliver a batch at the moment."""

    ref: BatchRef
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFailed:
    """Reading or computing a batch failed because of the data or the user's code."""

    ref: BatchRef
    failure: Failure
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPulled:
    """The weights for a batch have arrived."""

    ref: BatchRef
    seconds: Mapping[str, float] = field(default_factory=lambda: NO_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDelayed:
    """A batch has to wait for other workers: its weights are not to be pulled yet, or its step needs their batches."""

    ref: BatchRef
    seconds: Mapping[str, float] = field(default_factory=lambda: NO_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinLost:
    """The pinned weights for a batch of an evaluation are gone."""

    ref: BatchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchComputed:
    """A batch was trained on or evaluated.

    Attributes:
        loss: mean loss; None when nothing was computed (an empty batch).
        is_overflow: the gradients overflowed float16, so the batch is absorbed without them.
    """

    ref: BatchRef
    loss: float | None = None
    is_overflow: bool = False
    seconds: Mapping[str, float] = field(default_factory=lambda: NO_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPushed:
    """Every ps has answered the push of a batch.

    Attributes:
        has_pulled: whether the pull that followed the push brought weights that contain it.
        step: step of the weights that the batch was computed with.
    """

    ref: BatchRef
    outcome: PushOutcome
    has_pulled: bool = False
    step: int = 0
    seconds: Mapping[str, float] = field(default_factory=lambda: NO_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMade:
    """A long command (an export) is still moving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowBatchSeen:
    """The watchdog has seen a batch that takes long, or the end of it."""

    event: BatchSlow


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone:
    """A procedure's command was executed."""

    number: int
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailed:
    """A procedure's command failed."""

    number: int
    error: ElasticDLError = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailed:
    """A command that concerns no single batch or task failed; the worker can't continue."""

    error: ElasticDLError = field(compare=False)


Event = (
    Started
    | StopRequested
    | TasksDelivered
    | QueueEmpty
    | BatchRead
    | BatchUnreadable
    | BatchFailed
    | BatchPulled
    | PinLost
    | PullDelayed
    | BatchComputed
    | BatchPushed
    | ProgressMade
    | SlowBatchSeen
    | CommandDone
    | CommandFailed
    | ExecutionFailed
    | TimerFired
)
