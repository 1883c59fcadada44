"""The commands of the master: imperative, frozen, idempotent under (decision, position)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from elasticdl.shared.names import NO_INSTANCE, NO_POD, Incarnation, PodInstance, PodName, Purpose, Service


class JobState(Enum):
    """State of a job; the last three are final."""

    STARTING = "starting"
    TRAINING = "training"
    CLOSING = "closing"
    """Training is complete: final snapshots, audit, final evaluation, export."""
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Stopped on request; can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod:
    """Create a pod under this name.

    Attributes:
        is_spare: worker: it waits for the place of another one, so others may take the room of its pod.
    """

    pod: PodName
    service: Service
    is_spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPod:
    """End a pod.

    Attributes:
        kill: at once, because it is unresponsive; otherwise with a grace period.
        instance: the one to end, and no later one under this name; empty: one whose start was ordered earlier and has
            not been reported.
    """

    pod: PodName
    reason: str
    kill: bool = False
    instance: PodInstance = NO_INSTANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Put tasks on the queue.

    Attributes:
        tasks: ranges ``[start, end)`` of task numbers.
        again: workers take them before all tasks that are dispatched for the first time.
        evaluation: evaluate and merge: number of the evaluation (or epoch); export: see ``TaskMessage``.
        label: merge and export: see ``TaskMessage``.
        audited: merge and export: see ``TaskMessage``.
    """

    purpose: Purpose
    dispatch: int
    tasks: tuple[tuple[int, int], ...]
    again: bool = False
    evaluation: int = 0
    label: str = ""
    audited: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnDelivery:
    """Return a delivery of an ended worker to the queue, through its reply subject."""

    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Ask a ps for a snapshot; its SnapshotTaken carries ``request``.

    Attributes:
        request: number of the order; a ps that has taken it already only reports the snapshot again.
        flush: no training follows, so half-filled accumulators are applied first.
        tasks: flush: number of tasks of the plan, which may have become shorter; 0: as it was submitted.
        damaged: manifest of the snapshot that it took under this number, if it can't be read: a full snapshot has to
            replace it.
        move: number of the move that needs a copy of some partitions; 0: a snapshot of the ps.
        version: version of the placement to use; a ps that does not know it yet refuses.
        recipient: move: the ps that gets the copy and owns its objects.
        partitions: move: the partitions to copy, as ranges.
    """

    ps: PodName
    request: int
    reason: str
    damaged: str = ""
    move: int = 0
    freeze: bool = False
    version: int = 1
    recipient: PodName = NO_POD
    partitions: tuple[tuple[int, int], ...] = ()
    flush: bool = False
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginMove:
    """Begin to move partitions to another ps; the steps are ordered one by one.

    Attributes:
        stored: the donor is not running: the partitions are read from its last snapshot.
    """

    move: int
    donor: PodName
    recipient: PodName
    partitions: tuple[tuple[int, int], ...]
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldGroup:
    """Ask a ps to load partitions from another ps's snapshot and to register them; its answer is GroupHeld.

    Attributes:
        move: number of the move, and of the version of the placement that it leads to.
        manifest: URI of the snapshot; empty: the one in the donor's register.
        donor: the ps that wrote the snapshot.
        version: version of the placement that the move starts from; a ps that does not know it yet refuses.
    """

    ps: PodName
    move: int
    partitions: tuple[tuple[int, int], ...]
    manifest: str
    donor: PodName
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPlacement:
    """Publish a version of the placement.

    Attributes:
        owners: number of the owning ps of each partition.
    """

    version: int
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPin:
    """Ask a ps to keep its present state readable for an evaluation.

    Attributes:
        version: version of the placement under which it is read; a ps that does not know it yet refuses.
    """

    ps: PodName
    evaluation: int
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosePin:
    """Tell a ps that an evaluation has ended, so that it can drop the pinned state."""

    ps: PodName
    evaluation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLedgers:
    """Read the ledgers of a final snapshot from storage; the result is LedgersRead."""

    ps: PodName
    manifest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Append TimerFired at ``due_s``."""

    timer: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTraining:
    """End training early: the plan has this many epochs from now on. No task of a later one was dispatched."""

    epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLearningRate:
    """Train the tasks of this epoch (from 0) and of the following ones with a learning rate that a callback has set."""

    epoch: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveStates:
    """Remove stored metric states that nothing needs any more.

    Attributes:
        groups: epochs and evaluations whose metrics are on the log, or that have ended: all of their states.
        numbers: numbers of single states, as ranges: they are in a sum that is stored, or do not count.
    """

    groups: tuple[str, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RingMember:
    """A worker in a ring.

    Attributes:
        incarnation: the process; a later one under this name is another member.
        address: ``host:port`` at which it accepts connections of other members.
        node: the machine that it runs on; members on one machine are neighbours in the ring.
    """

    worker: PodName
    incarnation: Incarnation
    address: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRing:
    """Publish a generation of the ring of workers.

    Attributes:
        generation: its number; later ones are higher.
        members: by seniority; the first one leads, and serves the model as ``ps-0``.
        reason: why the one before is over.
    """

    generation: int
    members: tuple[RingMember, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteWorker:
    """Let a worker take part that has built the model and waits; only in jobs with spare workers.

    Attributes:
        incarnation: the process; a later one under this name waits for an order of its own.
        replaces: the worker whose place among the wanted ones it takes; its own name: it is wanted already.
    """

    worker: PodName
    incarnation: Incarnation
    replaces: PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterState:
    """Change the job's state; the last state of a job is final.

    Attributes:
        message: failed: what the user reads.
        guilty: failed: the pod whose log says more, or empty.
    """

    state: JobState
    message: str = ""
    guilty: str = ""


Command = (
    StartPod
    | StopPod
    | Dispatch
    | ReturnDelivery
    | TakeSnapshot
    | OpenPin
    | ClosePin
    | ReadLedgers
    | SetTimer
    | EnterState
    | HoldGroup
    | PublishPlacement
    | BeginMove
    | EndTraining
    | SetLearningRate
    | RemoveStates
    | FormRing
    | PromoteWorker
)
