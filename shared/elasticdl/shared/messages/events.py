"""The events of a job's log: past tense, frozen. ``elasticdl.master.core`` folds these events and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Annotated

from elasticdl.shared.errors import check_format
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.measurements import BatchSlow, ProcessMeasured, RunMeasured, TableCounted
from elasticdl.shared.messages.times import BatchTimes, Times
from elasticdl.shared.names import NO_INSTANCE, NOBODY, GroupId, Incarnation, PodInstance, PodName, Service
from elasticdl.shared.proto.fields import Uint64

LOG_FORMAT = 1
"""Of event logs; it changes with the meaning of a number in ``proto/control.proto``."""


class ExitCause(Enum):
    """Why a pod ended; ``elasticdl.shared.pods.causes`` classifies it."""

    FINISHED = "finished"
    """Exit code 0."""
    REFUSED = "refused"
    """A user error or a permanent error, which the process has logged; or the platform can't run the pod."""
    OWN_FAULT = "own_fault"
    """Segfault, abort, bus error, an unexpected exit code."""
    PREEMPTED = "preempted"
    """Ended from outside: preempted, evicted, SIGKILL, SIGTERM."""
    NODE_LOST = "node_lost"
    """The node, or the pod itself, is gone."""
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed it."""
    STOPPED = "stopped"
    """The master had ordered it."""
    DISCONNECTED = "disconnected"
    """NATS, a ps or the storage was unreachable for too long; the process did nothing wrong."""
    HUNG = "hung"
    """Worker: a batch exceeded its deadline in the user's code, so the process has ended itself."""


class FailureKind(Enum):
    """The cause of a failure."""

    USER_CODE = "user_code"
    DATA = "data"
    NOT_FINITE = "not_finite"
    """Loss or gradients are NaN or infinite."""
    ENVIRONMENT = "environment"
    """Storage, permissions, disk: another attempt would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLedger:
    """A group's ledger at one cut; ``partitions`` are the group's partitions of the model, as ranges."""

    group: GroupId
    ledger: LedgerRecord
    partitions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBatch:
    """A batch that a worker was reading, feeding or computing; recorded so that it survives a crash of the worker."""

    task: TaskRef
    batch: int


# --- the job ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """The first record of a log, which also says in which format the log is."""

    spec: JobSpec
    format: int = LOG_FORMAT

    def check_format(self) -> None:
        """Refuse a log of a newer version.

        Raises:
            FormatError: this is the first record of one.
        """
        check_format(f"the event log of job {self.spec.job}", self.format, LOG_FORMAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLog:
    """A part of the log is lost. The ledgers still tell what was trained; all else in that part is unknown.

    Attributes:
        after_s: time of the last record before the lost part; 0 if absent.
        until_s: time of the last lost record, if known; 0: unknown.
        records: number of lost records, if known; 0: unknown.
        history: JSON lines with what was known of the epochs before the loss; see ``elasticdl.views.history``.
    """

    after_s: float = 0.0
    until_s: float = 0.0
    records: int = 0
    history: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """The job starts again after a stop or a loss of every process; the task queue was purged before.

    Attributes:
        reason: the job's former state.
        lost: the part of the log before this record that is known to be lost, if any.
        ps: number of wanted ps from now on; 0: as before.
        placement: version of the placement, if it was recovered from the snapshots and not from the log.
        owners: owner of each partition in that version.
        epochs: number of epochs from now on, more than before; 0: as before.
        output: URI of the output from now on; empty: as before.
        continues: the run after which it was planned; empty: its own run has repeated JobSubmitted.
        skipped: training tasks that failed for good and are not trained any more, as ranges.
    """

    reason: str
    lost: LostLog | None = None
    ps: int = 0
    placement: int = 0
    owners: tuple[int, ...] = ()
    epochs: int = 0
    output: str = ""
    continues: Incarnation = NOBODY
    skipped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A user, the launcher, or a process whose storage is full asked the job to stop so that it can be resumed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequested:
    """A user asked for another number of workers or ps; 0: as before.

    Attributes:
        leaving: workers that leave first, for example because others need the room on their nodes. Without them those
            with the highest numbers leave.
    """

    workers: int = 0
    ps: int = 0
    leaving: tuple[PodName, ...] = ()


# --- pods (reported by the pod supervisor) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """A pod that was ordered can't start yet.

    Attributes:
        pod, service: its name and kind.
        limit_s: seconds after which the job gives up if the reason stays; 0: it waits as long as it takes.
    """

    pod: PodName
    service: Service
    reason: str
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStarted:
    """The process of a pod has started, and has not reported ready yet."""

    pod: PodName
    service: Service
    instance: PodInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExited:
    """A pod ended.

    Attributes:
        pod, service: its name and kind.
        exit_code: its exit code, or minus the signal's number.
        running_batches: worker: the batches that it was reading, feeding or computing.
        log_tail: the last lines of its log, for own faults and refusals.
        batches: worker: how many batches it had computed, repeated ones too.
        memory_limit_bytes: its memory limit, if it ran out of memory; 0: it had none, or it is not known.
        next_memory_limit_bytes: that of the next pod, which gets more memory; 0: it gets no more.
    """

    pod: PodName
    service: Service
    cause: ExitCause
    exit_code: int
    running_batches: tuple[RunningBatch, ...] = ()
    log_tail: str = ""
    batches: int = 0
    instance: PodInstance
    memory_limit_bytes: int = 0
    next_memory_limit_bytes: int = 0


# --- workers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A worker is ready to take tasks. ``notes`` are the start-up lines that the user sees."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuilt:
    """A worker of a job with spare workers has built the model, and waits for ``PromoteWorker``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped:
    """A worker stopped in an orderly way, after its running batch."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed:
    """A worker can't run at all: the model does not load, or storage refuses."""

    kind: FailureKind
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTaken:
    """A worker took an ``attempt`` (delivery) of a ``dispatch``; ``reply`` serves to return the delivery."""

    task: TaskRef
    dispatch: int
    attempt: int
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    """Every group has absorbed the task's last batch (train), or its result is in this record.

    Attributes:
        absorbed_by: train: digest of all ps that answered, with their incarnations (see ``ps_set_digest``).
        records: records of the counted batches.
        batches: number of counted batches: those that this worker computed, each once. Merge: those of the epoch whose
            metrics these are.
        loss_sum: sum over them of the mean loss of a batch.
        states: evaluate: their metric states, summed; empty if they are large.
        stored_states: numbers of the stored parts of metric states (see ``StoredStates``), if they are large.
        results: merge: metric name -> value, or what the callbacks ask for; export: empty.
        note: merge: why the callbacks ask for it, for people; short.
        times: the worker's time by part.
        sampled: train: the times of one batch; some tasks have it.
        placement_version: train: version of the placement under which every ps answered.
        counted: train: numbers of the counted batches in the task, as ranges.
        staleness: train: staleness in updates -> how many batches were absorbed with it.
        overflows: train: counted batches that were absorbed without gradients, because these overflowed float16.
        checksum: evaluate, predict: sum of the hashes of the task's records, modulo 2**64.
        file: predict: name of the file that the attempt has written.
    """

    task: TaskRef
    dispatch: int
    attempt: int
    records: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    states: MetricStates = field(default_factory=lambda: MappingProxyType({}))
    results: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    placement_version: int = 1
    counted: tuple[tuple[int, int], ...] = ()
    staleness: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    overflows: int = 0
    absorbed_by: Uint64 = 0
    times: Times = field(default_factory=Times)
    checksum: Uint64 = 0
    file: str = ""
    note: str = ""
    stored_states: tuple[int, ...] = ()
    sampled: BatchTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksTaken:
    """A worker took several tasks with one request; the same as a ``TaskTaken`` for each, in this order."""

    taken: tuple[TaskTaken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksFinished:
    """A worker reports several finished tasks together; the same as a ``TaskFinished`` for each, in this order."""

    finished: tuple[TaskFinished, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReturned:
    """A worker returned a task unfinished, on purpose; train: with what it counted, see ``TaskFinished``.

    ``is_dropped``: the task is off the queue, because it can't be done as this dispatch says, or not before others.
    """

    task: TaskRef
    dispatch: int
    attempt: int
    reason: str
    records: int = 0
    loss_sum: float = 0.0
    counted: tuple[tuple[int, int], ...] = ()
    staleness: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    overflows: int = 0
    is_dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDelayed:
    """Synchronous training: a worker has waited much longer than it computes, for a batch that another worker trains.

    Attributes:
        task: the task that the waiting worker trains.
        batch: its batch that can't be computed yet.
    """

    task: TaskRef
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingMemberReady:
    """A worker asks to be a member of the next generation of the ring.

    Attributes:
        address: ``host:port`` at which it accepts connections of other members.
        left: the generation that it has given up; 0: it was in none.
        step: updates of the model that its replica contains.
        has_model: whether it has a replica at all.
        reason: why it asks, for people.
        is_near: it is no member, and its replica is at most one update behind those of the ring.
        node: the machine that it runs on; empty: the machine of all members that say nothing.
    """

    address: str
    left: int = 0
    step: int = 0
    has_model: bool = False
    reason: str = ""
    is_near: bool = False
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDiffered:
    """The weights of a worker in the ring were not those of the other members. It copies the model from them.

    Attributes:
        step: updates after which they were compared.
        tensor: name of the first variable that differs.
    """

    step: int
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """An attempt of a task failed.

    Attributes:
        traceback: the frames of the user's code.
        batch: number of the batch in the task.
        source: URI of the data object.
        first_record: first record of the task's shard, counted from 0.
        step: the ps' step when it happened.
    """

    task: TaskRef
    dispatch: int
    attempt: int
    kind: FailureKind
    message: str
    traceback: str = ""
    batch: int = 0
    source: str = ""
    first_record: int = 0
    last_record: int = 0
    step: int = 0


# --- parameter servers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PsStarted:
    """A ps is ready under a new incarnation. Its ledgers replace the credit of its name.

    Attributes:
        address: ``host:port`` of its wire server.
        ledgers: the ledgers that it restored; empty before the model is initialised.
        restored_from: URI of the snapshot's manifest, or empty.
        claim: number of its claim in the ps' register: an instance with a lower number has lost the name.
    """

    address: str
    ledgers: tuple[GroupLedger, ...] = ()
    restored_from: str = ""
    claim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInitialised:
    """A ps holds its part of the model, with snapshot 0 registered.

    Attributes:
        signature: digest of the model's signature.
        parameters: dense elements in its part.
        note: what became of the weights that the model was to start from, for people; empty: there were none.
    """

    signature: str
    parameters: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """A snapshot is complete, checksummed and registered; or a copy for a move is complete.

    Attributes:
        manifest: URI of its manifest.
        request: number of the order; 0: the ps' own schedule.
        size_bytes: bytes written.
        seconds: time from the cut to the registration.
        move: number of the move that this copy is for, from which the ps itself is never restored; 0: a snapshot.
    """

    manifest: str
    request: int
    ledgers: tuple[GroupLedger, ...]
    size_bytes: int
    seconds: float
    move: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDamaged:
    """An object of a snapshot is missing, or differs from what was written.

    Attributes:
        snapshot: URI of its manifest.
        object: URI of the damaged object.
        instead: URI of the manifest that the ps restores instead; empty: none, or the audit orders a new snapshot.
    """

    ps: PodName
    snapshot: str
    object: str
    problem: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeld:
    """A ps holds partitions of another ps, in a registered snapshot of its own.

    Attributes:
        move: number of the move.
        manifest: URI of the donor's snapshot that they were read from.
        failure: why it can't hold them; empty: it does.
    """

    move: int
    manifest: str
    ledgers: tuple[GroupLedger, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPinned:
    """A ps keeps its present state readable for an evaluation."""

    evaluation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReached:
    """A ps passed a multiple of ``evaluation_steps``."""

    step: int


# --- the master -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TermStarted:
    """A master took over; every earlier one is fenced."""

    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that the core had set is due."""

    timer: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatsMissed:
    """No heartbeat of a process arrived in time: it has been silent for ``silent_s`` seconds."""

    pod: PodName
    incarnation: Incarnation
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgersRead:
    """The master read the ledgers in a final snapshot's manifest, for the audit."""

    ps: PodName
    manifest: str
    ledgers: tuple[GroupLedger, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailure:
    """A command that could not be run; ``position`` is its index in the decision."""

    position: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsRan:
    """The commands of all decisions up to log sequence ``up_to`` were run; ``failures`` are of the last decision."""

    up_to: int
    failures: tuple[CommandFailure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision of the master, applied immediately after the input ``after_seq``, live and in replay.

    Attributes:
        term: the master's term.
        after_seq: log sequence of the last input that it knew.
        now_s: the time of the decision.
        commands: the commands; each is idempotent under (this record, position).
        reasons: the reasons, as short texts.
    """

    term: int
    after_seq: int
    now_s: float
    commands: tuple[Annotated[Command, "CommandValue"], ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageUnreadable:
    """A message on the bus that can't be read and is put aside. The job continues without it: ledgers decide.

    Readers of the log make this event of a record that they can't read, so every consumer of the log gets it in the
    same way. A worker appends it for a task that it has removed from the queue.

    Attributes:
        subject: the message's subject, without the part that all subjects of the job have.
        seq: its sequence number in its stream.
        reason: why it can't be read.
    """

    subject: str
    seq: int
    reason: str


Event = (
    JobSubmitted
    | JobResumed
    | StopRequested
    | PodStarted
    | PodExited
    | WorkerStarted
    | WorkerStopped
    | WorkerFailed
    | TaskTaken
    | TaskFinished
    | TaskReturned
    | TaskFailed
    | PsStarted
    | ModelInitialised
    | SnapshotTaken
    | ModelPinned
    | StepReached
    | TermStarted
    | TimerFired
    | HeartbeatsMissed
    | LedgersRead
    | CommandsRan
    | Decided
    | ScaleRequested
    | SnapshotDamaged
    | GroupHeld
    | RoundDelayed
    | PodPending
    | TableCounted
    | TasksTaken
    | TasksFinished
    | RunMeasured
    | ProcessMeasured
    | BatchSlow
    | MessageUnreadable
    | RingMemberReady
    | ReplicaDiffered
    | ModelBuilt
)


def one_by_one(event: Event) -> tuple[Event, ...]:
    """What an event says of each task by itself; an event that is not about several tasks as it is."""
    match event:
        case TasksTaken():
            return event.taken
        case TasksFinished():
            return event.finished
        case _:
            return (event,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An event with its sender, time and cause.

    Attributes:
        service: the sender's service.
        run: worker and ps: incarnation of the launcher that opened the sender's run; empty after the sender's first
            events, which have declared it.
        instance: worker and ps: the sender's pod instance; declared like ``run``.
        number: 1, 2, 3... within the incarnation; a reader ignores numbers that it has seen.
        cause: id of the event or order that led to it, or empty.
        time_s: the sender's wall clock.
    """

    service: Service
    name: PodName
    incarnation: Incarnation
    number: int
    cause: str = ""
    time_s: float
    run: Incarnation = NOBODY
    instance: PodInstance = NO_INSTANCE
    event: Event

    @property
    def id(self) -> str:
        """Unique in the job."""
        return f"{self.incarnation}.{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """An envelope with its sequence number in the log."""

    seq: int
    envelope: Envelope
