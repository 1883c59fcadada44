"""What the worker's core orders, and the lane that executes each command.

Commands of one lane are executed one after the other in the order of their issue. Commands of different lanes overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.messages.events import Event as LoggedEvent
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core.batch_order import BatchRef
from elasticdl.worker.core.tasks.leased import LeasedTask

COMPUTE = "compute"
"""The main thread: everything that runs the model."""
INPUT = "input"
"""Reads and feeds batches and finds their ids."""
PS = "ps"
"""Pulls and pushes; the order of its commands is the order on the wire."""
QUEUE = "queue"
"""Waits for tasks."""
BROKER = "broker"
"""Publishes events, acknowledges and returns tasks, in this order."""
LEASES = "leases"
"""Extends leases; a publish that waits for the broker must not delay it."""
LANES = (COMPUTE, INPUT, PS, QUEUE, BROKER, LEASES)
LANES_ON_LOOP = (QUEUE, BROKER, LEASES)
"""These wait for the broker, whose client is on an asyncio loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeTasks:
    """Take tasks from the queue: ``TasksDelivered`` or ``QueueEmpty``. ``count``: how many training tasks at most."""

    wait_s: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatch:
    """Read and feed a batch and find its ids: ``BatchRead``, ``BatchUnreadable`` or ``BatchFailed``."""

    ref: BatchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PullBatch:
    """Pull the weights for a batch: ``BatchPulled``, ``PullDelayed`` or ``PinLost``.

    Attributes:
        pin: the evaluation whose pinned weights are pulled; 0: the current ones.
    """

    ref: BatchRef
    pin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeBatch:
    """Compute the gradients of a batch: ``BatchComputed``, ``BatchFailed`` or ``PullDelayed``.

    Attributes:
        learning_rate: the rate that callbacks have set for its epoch; None: that of the optimizer.
    """

    ref: BatchRef
    learning_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """Push a computed batch, and pull for the next one in the same round trip: ``BatchPushed``."""

    ref: BatchRef
    pull: BatchRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateBatch:
    """Evaluate a batch: ``BatchComputed`` or ``BatchFailed``."""

    ref: BatchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictBatch:
    """Predict a batch and keep its predictions: ``BatchComputed`` or ``BatchFailed``."""

    ref: BatchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBatch:
    """Drop the data of a batch and return its receive buffers."""

    ref: BatchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardMetrics:
    """Drop the metrics of an evaluation task: it starts."""

    task: TaskRef


@dataclass(frozen=True, slots=True, kw_only=True)
class AckTask:
    """Acknowledge a delivery: the queue forgets the task."""

    lease: LeasedTask


@dataclass(frozen=True, slots=True, kw_only=True)
class NakTask:
    """Return a delivery to the queue, which delivers the task again."""

    lease: LeasedTask


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendLease:
    """Start a new lease of a delivery."""

    lease: LeasedTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """End the process; ``reason``: why the worker can't continue; empty: it was asked to stop."""

    exit_code: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialiseModel:
    """Procedure step: wait for all ps and offer them the initial values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskProgress:
    """Procedure step: ask the ledgers how far a task is; the result is a ``TaskProgress``."""

    task: TaskId
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvent:
    """Procedure step: append an event to the job's log; done once the log has acknowledged it."""

    event: LoggedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvents:
    """Procedure step: append events to the job's log, one after the other; done once all are acknowledged."""

    events: tuple[LoggedEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectMetrics:
    """Procedure step: read the metric states of the evaluation task that has ended; the result is ``MetricStates``."""

    task: TaskRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStates:
    """Procedure step: store large metric states; the result is the numbers of their parts."""

    group: str
    states: MetricStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStates:
    """Procedure step: read stored metric states; the result is their parts, without those that are gone."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumStates:
    """Procedure step: add parts of stored metric states to others; the result is the sum."""

    states: MetricStates
    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStates:
    """Procedure step: compute results from summed metric states; the result is metric -> value."""

    task: TaskRef
    states: MetricStates


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEpochMetrics:
    """Procedure step: read the sums over the batches of an epoch from the ps; the result is ``EpochMetrics``.

    Those of earlier epochs are dropped: their results are on the log. ``skipped``: tasks that a ps may lack.
    """

    epoch: int
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEpochMetrics:
    """Procedure step: compute the results of an epoch of training; the result is metric -> value."""

    task: TaskRef
    states: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge task has computed, or what callbacks ask for.

    Attributes:
        results: metric -> value; of callbacks ``ended``, ``stop_training`` and ``learning_rate``, where they apply.
        note: why callbacks ask for it, for people.
    """

    results: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCallbacks:
    """Procedure step: run the hooks of the model file's callbacks; the result is a ``MergeResult``.

    Attributes:
        number: ``2 k`` ends epoch k, from 1; ``2 k + 1`` begins training after k epochs.
        logs: metric name -> value of the epoch that has ended.
        is_last: no epoch follows.
        instances: ps -> the instance that has the model at the end of that epoch; empty: no epoch has ended.
    """

    task: TaskRef
    number: int
    logs: Mapping[str, float]
    is_last: bool
    instances: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportModel:
    """Procedure step: write the model to the job's output; the result is the seconds that it took.

    Attributes:
        version: the evaluation whose saved model is exported; 0: the current one.
        output: URI of the output; empty: that of the submitted job.
        audited: the current model is read from these instances of the ps and no others.
        snapshots: URIs of the manifests that have the rows of the current model.
        weights_first: write the weights alone before the model, because an attempt before this one did not return.
    """

    task: TaskRef
    version: int
    output: str = ""
    audited: Mapping[str, str]
    snapshots: tuple[str, ...] = ()
    weights_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePredictions:
    """Procedure step: write the predictions of a task, all of whose batches were predicted; the result names the file.

    No other attempt writes a file of that name.
    """

    task: TaskRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPredictions:
    """Procedure step: give the files that count their final names; the result is the seconds that it took.

    Attributes:
        files: for each task of the plan, in order, the name of its file.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveModel:
    """Procedure step: save the pinned model of an evaluation; the result is the seconds that it took.

    Attributes:
        keep: the evaluation whose saved model stays beside it; 0: none.
    """

    pin: int
    keep: int


Step = (
    InitialiseModel
    | AskProgress
    | PublishEvent
    | PublishEvents
    | CollectMetrics
    | StoreStates
    | LoadStates
    | SumStates
    | MergeStates
    | ReadEpochMetrics
    | ComputeEpochMetrics
    | RunCallbacks
    | ExportModel
    | SaveModel
    | WritePredictions
    | PublishPredictions
)
"""Commands whose result resumes a procedure; they are issued inside ``Issued``."""
Command = (
    TakeTasks
    | ReadBatch
    | PullBatch
    | ComputeBatch
    | PushBatch
    | EvaluateBatch
    | PredictBatch
    | ReleaseBatch
    | DiscardMetrics
    | AckTask
    | NakTask
    | ExtendLease
    | Exit
    | Issued[Step]
)

_LANES: Mapping[type, str] = {
    TakeTasks: QUEUE,
    ReadBatch: INPUT,
    PullBatch: PS,
    PushBatch: PS,
    ReleaseBatch: PS,
    InitialiseModel: PS,
    AskProgress: PS,
    ReadEpochMetrics: PS,
    ComputeBatch: COMPUTE,
    EvaluateBatch: COMPUTE,
    PredictBatch: COMPUTE,
    DiscardMetrics: COMPUTE,
    CollectMetrics: COMPUTE,
    SumStates: COMPUTE,
    MergeStates: COMPUTE,
    ComputeEpochMetrics: COMPUTE,
    RunCallbacks: COMPUTE,
    ExportModel: COMPUTE,
    SaveModel: COMPUTE,
    WritePredictions: COMPUTE,
    PublishPredictions: COMPUTE,
    PublishEvent: BROKER,
    PublishEvents: BROKER,
    StoreStates: BROKER,
    LoadStates: BROKER,
    AckTask: BROKER,
    NakTask: BROKER,
    Exit: BROKER,
    ExtendLease: LEASES,
}


def lane_of(command: Command) -> str:
    """The lane that executes a command."""
    return _LANES[type(command.command if isinstance(command, Issued) else command)]
