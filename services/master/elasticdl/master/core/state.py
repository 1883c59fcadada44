"""What the master knows: everything in here was folded from the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from elasticdl.master.core.closing.audit import AuditResult
from elasticdl.master.core.pods.failure import Failure
from elasticdl.master.core.pods.state import Holding, Pod, PodPhase
from elasticdl.master.core.training.bookkeeping import Training
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import MetricStates, TaskRef
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import (
    Decided,
    FailureKind,
    GroupLedger,
    LostLog,
    RunningBatch,
    SnapshotDamaged,
    TaskFailed,
)
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.names import NOBODY, Incarnation, PodName, Service, pod_name, pod_number


class MovePhase(Enum):
    """How far a move is; see ``moving.py``."""

    BEGUN = "begun"
    COPYING = "copying"
    COPIED = "copied"
    LOADING = "loading"
    LOADED = "loaded"
    FREEZING = "freezing"
    FROZEN = "frozen"
    CATCHING_UP = "catching up"
    HELD = "held"
    GIVEN_UP = "given up"


@dataclass(slots=True, kw_only=True)
class Move:
    """Partitions on their way from one ps to another.

    Attributes:
        number: of the move, and of the version of the placement that it leads to.
        donor: whose they are.
        recipient: who gets them.
        partitions: which.
        stored: the donor is not there: they come from its last snapshot.
        phase: how far it is.
        request: number of the last snapshot order.
        copies: what the donor has written for it: everything, and then what had changed.
        size_bytes: of the last one.
        before_bytes: of the one before.
        manifest: the last copy.
        ledgers: of the groups that the recipient holds.
    """

    number: int
    donor: PodName
    recipient: PodName
    partitions: Ranges
    stored: bool
    phase: MovePhase = MovePhase.BEGUN
    request: int = 0
    copies: int = 0
    size_bytes: int = 0
    before_bytes: int = 0
    manifest: str = ""
    ledgers: tuple[GroupLedger, ...] = ()


class EvaluationPhase(Enum):
    """How far an evaluation is."""

    PINNING = "pinning"
    RUNNING = "running"
    MERGING = "merging"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One evaluation of one pinned state of the model.

    Attributes:
        number: 1, 2, 3... in the job.
        reason: what triggered it.
        epoch: the last completed epoch, from 0; -1 before the first.
        final: whether it is the job's last word on the model.
        phase: how far it is.
        pins: step of each ps at its pin.
        incarnations: which life of each ps holds the pin.
        states: task number -> metric states; the first result of a task wins.
        results: metric name -> value.
        started_s: when it was decided.
        ended_s: when its results came.
    """

    number: int
    reason: str
    epoch: int
    final: bool
    started_s: float
    phase: EvaluationPhase = EvaluationPhase.PINNING
    pins: dict[PodName, int] = field(default_factory=dict)
    incarnations: dict[PodName, Incarnation] = field(default_factory=dict)
    states: dict[int, MetricStates] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    ended_s: float = 0.0

    @property
    def step(self) -> int:
        """Step of the evaluated model: the largest of the pins."""
        return max(self.pins.values(), default=0)


@dataclass(slots=True, kw_only=True)
class Merge:
    """Metric states on their way to becoming numbers.

    Attributes:
        label: ``evaluation`` or ``epoch``.
        subject: which of them, by its number.
        done: whether the numbers are there, or nobody waits for them any more.
    """

    label: str
    subject: int
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Closing:
    """The end of a job that has learned everything.

    Attributes:
        request: number of the final snapshot order.
        manifests: ps -> manifest of its final snapshot.
        ledgers: ps -> ledgers as read back from storage.
        asked: ps that were asked for a final snapshot.
        damaged: ps -> its final snapshots that turned out to be damaged, the last one at the end.
        reading: ps whose ledgers were asked for.
        audit: the verdict.
        exported: whether the export task is done.
        export_dispatched: whether it was dispatched.
    """

    request: int = 0
    asked: set[PodName] = field(default_factory=set)
    manifests: dict[PodName, str] = field(default_factory=dict)
    damaged: dict[PodName, list[str]] = field(default_factory=dict)
    reading: set[PodName] = field(default_factory=set)
    ledgers: dict[PodName, tuple[GroupLedger, ...]] = field(default_factory=dict)
    audit: AuditResult | None = None
    export_dispatched: bool = False
    exported: bool = False


@dataclass(slots=True, kw_only=True)
class Stopping:
    """The end of a job that was told to stop, or has to.

    Attributes:
        request: number of the last snapshot order.
        asked: ps that were asked for a last snapshot.
        saved: ps that have it.
        overdue: the time for it is over.
    """

    request: int = 0
    asked: set[PodName] = field(default_factory=set)
    saved: set[PodName] = field(default_factory=set)
    overdue: bool = False


@dataclass(slots=True, kw_only=True)
class RegisteredSnapshot:
    """A ps' latest registered snapshot.

    Attributes:
        manifest: URI of its manifest.
        size_bytes: bytes written for it.
        seconds: from the cut to the registration.
        time_s: when the ps said so.
        step: batches that every group in it has absorbed.
    """

    manifest: str
    size_bytes: int
    seconds: float
    time_s: float
    step: int = 0


@dataclass(slots=True, kw_only=True)
class State:
    """A job as its log tells it.

    ``evolve`` changes it in place (a log has millions of records) and is the only one who does.
    """

    spec: JobSpec | None = None
    """The job; None before the log's first record."""
    job_state: JobState = JobState.STARTING
    failure: Failure | None = None
    """Why the job has to end; the first reason stays."""
    stop_reason: str = ""
    """Why somebody wants the job to stop; empty: nobody does."""
    workers: int = 0
    """How many workers are wanted now."""
    ps: int = 0
    """How many ps are wanted now."""
    placement: Placement = field(default_factory=lambda: Placement.even(1))
    """The latest version that was decided on."""
    is_published: bool = True
    """Whether that was ordered to be made known since the job was last started."""
    move: Move | None = None
    """The move that is under way."""
    unreadable: set[PodName] = field(default_factory=set)
    """Ps whose last snapshot could not be read for a move; one that starts again knows older ones."""
    seq: int = 0
    """Log sequence of the last folded input; decisions don't count, they follow an input."""
    last_id: str = ""
    """Id of that input's envelope."""
    master_seq: int = 0
    """Log sequence of the last folded record of a master."""
    term: int = 0
    """Of the latest master; 0: there was none."""
    submitted_s: float = 0.0
    """When the job was submitted; as all times here, seconds since 1970 by the clock of whoever says it."""
    now_s: float = 0.0
    """The latest time of any record."""
    paused_s: float = 0.0
    """Time in which nobody ran, between the end of a run and the next one; no duration counts it."""
    first_step_s: float = 0.0
    """When the first finished task was begun; 0: none is finished."""
    trained_s: float = 0.0
    """When a task became complete last; 0: none is."""
    ended_s: float = 0.0
    """When the job ended; 0: it goes on."""
    resumes: int = 0
    run: Incarnation = NOBODY
    """Whoever submitted or resumed the job last."""
    floor: int = 0
    """Evaluations and merges get higher numbers: lower ones may have been used by a part of the log that is lost."""
    lost_logs: list[tuple[float, LostLog]] = field(default_factory=list)
    """Parts of the log that are gone, each with the time of the resume that went on without it."""
    seen: dict[Incarnation, int] = field(default_factory=dict)
    """Number of the last envelope of each life: lower ones are repetitions."""
    pods: dict[PodName, Pod] = field(default_factory=dict)
    training: Training | None = None
    holdings: dict[TaskRef, dict[Incarnation, Holding]] = field(default_factory=dict)
    """Task -> who has it in hand; at the end of a job perhaps two."""
    to_return: list[str] = field(default_factory=list)
    """Reply subjects of deliveries whose holder is gone."""
    failures: dict[TaskRef, list[TaskFailed]] = field(default_factory=dict)
    """Task -> how it has failed so far; those of a train task are forgotten once it is complete."""
    deaths: dict[RunningBatch, set[int]] = field(default_factory=dict)
    """Batch -> pids of the workers that died of their own fault with it in hand."""
    evaluations: list[Evaluation] = field(default_factory=list)
    evaluation_due: list[str] = field(default_factory=list)
    """Reasons to evaluate that nobody has acted on yet."""
    step_reached: int = 0
    """The last step that gave such a reason: a restored ps passes some steps once more."""
    pins_to_close: set[tuple[PodName, int]] = field(default_factory=set)
    """(ps, evaluation) of pins that nobody needs any more."""
    merges: dict[int, Merge] = field(default_factory=dict)
    """Number of the merge task -> what it is about."""
    dispatches: int = 0
    """Number of the last dispatch."""
    requests: int = 0
    """Number of the last snapshot order."""
    timers: dict[str, float] = field(default_factory=dict)
    """Timer (see ``timers.py``) -> when it is due."""
    closing: Closing = field(default_factory=Closing)
    stopping: Stopping = field(default_factory=Stopping)
    snapshots: dict[PodName, RegisteredSnapshot] = field(default_factory=dict)
    damaged: dict[str, SnapshotDamaged] = field(default_factory=dict)
    """URI of a damaged object -> what became of its snapshot."""
    repaired: int = 0
    """Tasks that an audit found missing in a ledger and had dispatched again."""
    unran: list[tuple[int, Decided]] = field(default_factory=list)
    """Decisions without a recorded outcome: a successor runs their commands again."""

    @property
    def job(self) -> JobSpec:
        """The spec, once it is known.

        Raises:
            LookupError: the log has no JobSubmitted yet.
        """
        if self.spec is None:
            raise LookupError("the log has no JobSubmitted record")
        return self.spec

    @property
    def plan(self) -> Plan:
        """The training plan."""
        return self.job.plan

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.job_state in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation that is going on, if any."""
        last = self.evaluations[-1] if self.evaluations else None
        return last if last and last.phase not in (EvaluationPhase.DONE, EvaluationPhase.ABANDONED) else None

    def pods_of(self, service: Service) -> Iterator[Pod]:
        """The pods of one service, by name."""
        return (pod for _, pod in sorted(self.pods.items()) if pod.service is service)

    def running(self, service: Service) -> list[Pod]:
        """The pods of one service that have said that they are ready."""
        return [pod for pod in self.pods_of(service) if pod.phase is PodPhase.RUNNING]

    @property
    def holders(self) -> tuple[PodName, ...]:
        """The ps that own something of the model."""
        return tuple(pod_name(Service.PS, number) for number in self.placement.holders)

    def owned(self, ps: PodName) -> Ranges:
        """The partitions of a ps."""
        return self.placement.partitions(pod_number(ps))

    @property
    def running_holders(self) -> list[Pod]:
        """The ps that own something and have said that they are ready."""
        return [pod for pod in self.running(Service.PS) if pod.name in self.holders]

    @property
    def all_ps_running(self) -> bool:
        """Whether every ps that owns something serves."""
        return self.spec is not None and len(self.running_holders) == len(self.holders)

    def fail(self, message: str, guilty: str = "", kind: FailureKind = FailureKind.ENVIRONMENT) -> None:
        """Note why the job has to end; the first reason stays."""
        if self.failure is None:
            self.failure = Failure(message=message, guilty=guilty, kind=kind)
