"""What the master orders: imperative, frozen, idempotent under (decision, position)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.names import NO_POD, PodName, Purpose, Service


class JobState(Enum):
    """How a job stands; the last three are final."""

    STARTING = "starting"
    TRAINING = "training"
    CLOSING = "closing"
    """Everything is absorbed: final snapshots, audit, final evaluation, export."""
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Stopped on request; can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPod:
    """Have a process running under this name."""

    pod: PodName
    service: Service


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPod:
    """Have a process end.

    Attributes:
        pod: its name.
        reason: why, for the log.
        kill: at once (SIGKILL), because it does not answer; otherwise it is asked (SIGTERM).
    """

    pod: PodName
    reason: str
    kill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Publish tasks.

    Attributes:
        purpose: whose id space.
        dispatch: number of this publication.
        tasks: ranges ``[start, end)`` of task numbers.
        again: put them before everything that was dispatched for the first time.
        evaluation: evaluate and merge: which evaluation (or epoch).
        label: merge: ``evaluation`` or ``epoch``.
    """

    purpose: Purpose
    dispatch: int
    tasks: tuple[tuple[int, int], ...]
    again: bool = False
    evaluation: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnDelivery:
    """Give a dead worker's delivery back to the queue through its reply subject."""

    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Ask a ps for a snapshot; its SnapshotTaken carries ``request``.

    Attributes:
        ps: whom.
        request: number of the order; asked again under it, a ps that has the snapshot only says so.
        reason: for people.
        flush: nothing is trained after it, so half-filled accumulators are flushed.
        damaged: manifest of the snapshot that it took under this number, if that one can't be read: a full one is
            wanted in its place.
        move: not 0: what is wanted is a copy of some partitions for this move, not a snapshot of the ps.
        freeze: absorb nothing after it until the move is over.
        version: of the placement by which it is to be taken; a ps that does not know it yet refuses.
        recipient: who gets a copy; the objects belong to it.
        partitions: what a copy is of, as ranges.
    """

    ps: PodName
    request: int
    reason: str
    flush: bool = False
    damaged: str = ""
    move: int = 0
    freeze: bool = False
    version: int = 1
    recipient: PodName = NO_POD
    partitions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginMove:
    """Partitions are going to another ps; what is to be done for it is ordered step by step.

    Attributes:
        move: number of the move, and of the version of the placement that it leads to.
        donor: whose they are.
        recipient: who gets them.
        partitions: which, as ranges.
        stored: the donor is not there: they come from its last snapshot.
    """

    move: int
    donor: PodName
    recipient: PodName
    partitions: tuple[tuple[int, int], ...]
    stored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldGroup:
    """Ask a ps to read partitions from another one's snapshot and to register them; its answer is GroupHeld.

    Attributes:
        ps: whom.
        move: number of the move; the version of the placement that it leads to.
        partitions: which, as ranges.
        manifest: URI of the snapshot; empty: the one in the donor's register.
        donor: whose snapshot.
        version: of the placement that the move starts from; a ps that does not know it yet refuses.
    """

    ps: PodName
    move: int
    partitions: tuple[tuple[int, int], ...]
    manifest: str
    donor: PodName
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPlacement:
    """Make a version of the placement known to all.

    Attributes:
        version: its number.
        owners: number of the owning ps of each partition.
    """

    version: int
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPin:
    """Ask a ps to keep its present state readable for an evaluation.

    Attributes:
        ps: whom.
        evaluation: its number.
        version: of the placement by which it will be read; a ps that does not know it yet refuses.
    """

    ps: PodName
    evaluation: int
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosePin:
    """The evaluation is over; the ps may forget the pinned state."""

    ps: PodName
    evaluation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLedgers:
    """Read the ledgers of a final snapshot from storage; the answer is LedgersRead."""

    ps: PodName
    manifest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Have TimerFired appended at ``due_s``."""

    timer: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterState:
    """The job's state changes; the last one of a job is final.

    Attributes:
        state: the new state.
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
    | BeginMove
    | HoldGroup
    | PublishPlacement
    | OpenPin
    | ClosePin
    | ReadLedgers
    | SetTimer
    | EnterState
)
