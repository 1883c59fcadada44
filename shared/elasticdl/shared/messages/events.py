"""What happened: every kind of record of a job's event log, past tense, frozen.

The log is the state: ``elasticdl.master.core`` folds these and nothing else. ``codec.py`` turns them into protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.names import GroupId, Incarnation, PodName, Service


class ExitCause(Enum):
    """Why a process ended, as far as its keeper can tell."""

    FINISHED = "finished"
    """Exit code 0."""
    REFUSED = "refused"
    """It said a clear last word: a user error or a permanent one (exit codes 1 and 2)."""
    OWN_FAULT = "own_fault"
    """Segfault, abort, bus error, out of memory, an unexpected exit code."""
    OUTSIDE = "outside"
    """Killed from outside: SIGKILL, SIGTERM, preemption, node loss."""


class FailureKind(Enum):
    """Whose fault a failure is."""

    USER_CODE = "user_code"
    DATA = "data"
    NOT_FINITE = "not_finite"
    """Loss or gradients are NaN or infinite."""
    ENVIRONMENT = "environment"
    """Storage, rights, disk: nothing that another attempt would change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLedger:
    """A group's ledger at some cut; ``partitions`` says as ranges which part of the model it is about."""

    group: GroupId
    ledger: LedgerRecord
    partitions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBatch:
    """A batch that a worker was reading, feeding or computing; kept where it survives the worker's death."""

    task: TaskRef
    batch: int


# --- the job ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """The first record of a log."""

    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LostLog:
    """A part of the log is gone: what was learned meanwhile say the ledgers, what else happened says nobody.

    Attributes:
        after_s: time of the last record that is left; 0: nothing was left.
        until_s: time up to which the lost part reached, as far as anybody remembers; 0: unknown.
        records: how many records are gone, as far as anybody remembers; 0: unknown.
    """

    after_s: float = 0.0
    until_s: float = 0.0
    records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """The job is started again after a stop or a loss of every process; the task queue was purged before.

    Attributes:
        reason: what it was before.
        lost: what is gone of the log before this record, if anything is known to be.
        ps: how many ps are wanted from now on; 0: as many as before.
        placement: version of the placement, if the snapshots and not the log had to tell it.
        owners: that table.
    """

    reason: str
    lost: LostLog | None = None
    ps: int = 0
    placement: int = 0
    owners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """Somebody asked the job to stop so that it can be resumed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequested:
    """Somebody wants another number of processes from now on; 0: as many as before."""

    workers: int = 0
    ps: int = 0


# --- pods (reported by whoever keeps them: the launcher's process adapter, or Kubernetes) -----------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStarted:
    """A process was started; it has not said anything itself yet."""

    pod: PodName
    service: Service
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExited:
    """A process ended.

    Attributes:
        pod: its name.
        service: which service.
        pid: the process id that ended.
        cause: why.
        exit_code: its exit code, or minus the signal's number.
        running_batches: workers: the batches that it was reading, feeding or computing.
        log_tail: the last lines of its log, for own faults and refusals.
        batches: workers: how many it had computed, repeated ones too.
    """

    pod: PodName
    service: Service
    pid: int
    cause: ExitCause
    exit_code: int
    running_batches: tuple[RunningBatch, ...] = ()
    log_tail: str = ""
    batches: int = 0


# --- workers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A worker is ready to take tasks. ``notes`` are the start-up lines that the user sees."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped:
    """A worker said goodbye after finishing the batch in hand."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailed:
    """A worker can't work at all: the model does not load, storage refuses."""

    kind: FailureKind
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTaken:
    """A worker has an ``attempt`` (delivery) of a ``dispatch`` (publication); at ``reply`` anybody may give it back."""

    task: TaskRef
    dispatch: int
    attempt: int
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    """Every group has absorbed the task's last batch (train), or its result is in this record.

    Attributes:
        credits: train: the incarnation of each ps that answered.
        records: records of the batches that were counted.
        batches: how many were counted: those that this worker computed, each once however often it did.
        loss_sum: sum over them of the mean loss of a batch.
        states: metric states of them.
        results: merge: metric name -> value; export: empty.
        seconds: where the worker's time went: ``read``, ``feed``, ``pull``, ``compute``, ``push``, ``total``.
        placement_version: train: version of the placement under which every ps answered.
        counted: train: their numbers in the task, as ranges; empty in old logs, which meant the last ``batches``.
    """

    task: TaskRef
    dispatch: int
    attempt: int
    credits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    records: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    states: MetricStates = field(default_factory=lambda: MappingProxyType({}))
    results: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    placement_version: int = 1
    counted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReturned:
    """A worker gave a task back unfinished, on purpose; train: with what it had counted of it, see ``TaskFinished``."""

    task: TaskRef
    dispatch: int
    attempt: int
    reason: str
    records: int = 0
    loss_sum: float = 0.0
    states: MetricStates = field(default_factory=lambda: MappingProxyType({}))
    counted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task can't be done: the user's code or the data.

    Attributes:
        kind: whose fault.
        message: one clear sentence for the user.
        traceback: the user's frames.
        batch: number of the batch in the task.
        source: URI of the data object.
        first_record: first record of the task's shard, counted from 0.
        last_record: one past its last.
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
    """A ps serves under a new incarnation. Its ledgers replace whatever was credited to its name.

    Attributes:
        address: ``host:port`` of its wire server.
        ledgers: what it restored; empty before the model is initialised.
        restored_from: URI of the snapshot's manifest, or empty.
        claim: number of its claim in the ps' register: whoever has a lower one is not the name's owner any more.
    """

    address: str
    ledgers: tuple[GroupLedger, ...] = ()
    restored_from: str = ""
    claim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInitialised:
    """A ps holds its part of the model, with snapshot 0 registered."""

    signature: str
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """A snapshot is complete, checksummed and registered; or a copy for a move is complete.

    Attributes:
        manifest: URI of its manifest.
        request: number of the order that asked for it; 0: the ps' own schedule.
        ledgers: the ledger of each group in it.
        size_bytes: bytes written.
        seconds: time from the cut to the registration.
        move: not 0: it is a copy for this move, from which the ps itself is never restored.
    """

    manifest: str
    request: int
    ledgers: tuple[GroupLedger, ...]
    size_bytes: int
    seconds: float
    move: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDamaged:
    """An object of a snapshot is missing or is not what was written.

    Attributes:
        ps: whose snapshot.
        snapshot: URI of its manifest.
        object: URI of the damaged object.
        problem: what is wrong with it.
        instead: URI of the manifest that the ps goes on from; empty: it was found by the audit, which asks for a new
            snapshot, or there is none.
    """

    ps: PodName
    snapshot: str
    object: str
    problem: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeld:
    """A ps holds partitions of another one, in a snapshot of its own that is registered.

    Attributes:
        move: number of the move.
        manifest: URI of the donor's snapshot that they were read from.
        ledgers: of the groups that are held.
        failure: why they can't be held; empty: they are.
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
    """A timer that the core had asked for came due."""

    timer: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceNoticed:
    """A process has not been heard of for longer than it may be silent."""

    pod: PodName
    incarnation: Incarnation
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgersRead:
    """The audit's evidence: the ledgers as they are in a final snapshot's manifest."""

    ps: PodName
    manifest: str
    ledgers: tuple[GroupLedger, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailure:
    """A command that could not be carried out; ``position`` is its place in the decision."""

    position: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsRan:
    """The commands of the decisions up to (and with) log sequence ``up_to`` were run; ``failures``: of the last one."""

    up_to: int
    failures: tuple[CommandFailure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision of the master: folded immediately after the input ``after_seq``, live and in replay.

    Attributes:
        term: the master's term.
        after_seq: log sequence of the last input that it knew.
        now_s: the time it was told.
        commands: what is to be done; each is idempotent under (this record, position).
        reasons: one sentence per thing decided.
    """

    term: int
    after_seq: int
    now_s: float
    commands: tuple[Command, ...]
    reasons: tuple[str, ...] = ()


Event = (
    JobSubmitted
    | JobResumed
    | StopRequested
    | ScaleRequested
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
    | SnapshotDamaged
    | GroupHeld
    | ModelPinned
    | StepReached
    | TermStarted
    | TimerFired
    | SilenceNoticed
    | LedgersRead
    | CommandsRan
    | Decided
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An event with who, when and why.

    Attributes:
        service: which service says it.
        name: which process.
        incarnation: which life of it.
        number: 1, 2, 3... within the incarnation; a reader ignores numbers that it has seen.
        cause: id of the event or order that led to it, or empty.
        time_s: the sender's wall clock.
        event: what happened.
    """

    service: Service
    name: PodName
    incarnation: Incarnation
    number: int
    cause: str = ""
    time_s: float
    event: Event

    @property
    def id(self) -> str:
        """Unique in the job."""
        return f"{self.incarnation}.{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """An envelope with its place in the log."""

    seq: int
    envelope: Envelope
