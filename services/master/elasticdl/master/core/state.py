"""The state of a job: everything in it follows from the event log."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from itertools import chain, count, islice
from operator import attrgetter

from elasticdl.master.core.callbacks.state import Callbacks
from elasticdl.master.core.closing.state import Closing, Stopping
from elasticdl.master.core.evaluation.state import Best, Evaluation, EvaluationPhase, Merge
from elasticdl.master.core.job.failure import Failure
from elasticdl.master.core.moves.state import Move
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.prediction.state import Prediction
from elasticdl.master.core.rings.state import Ring
from elasticdl.master.core.snapshots.state import RegisteredSnapshot
from elasticdl.master.core.training.state import RunningAttempt, Training
from elasticdl.master.core.unreadable_messages import UnreadableMessages
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Decided, FailureKind, LostLog, RunningBatch, SnapshotDamaged, TaskFailed
from elasticdl.shared.messages.measurements import ProcessMeasured, RunMeasured, TableCounted
from elasticdl.shared.model.placement import ALL, Placement, Ranges
from elasticdl.shared.names import (
    NOBODY,
    SERVED_REPLICA,
    Incarnation,
    PodInstance,
    PodName,
    Service,
    pod_name,
    pod_names,
    pod_number,
)

_name_of = attrgetter("name")
_MAY_BE_PROMOTED = (PodPhase.ORDERED, PodPhase.STARTING, PodPhase.WAITING)


@dataclass(slots=True, kw_only=True)
class State:
    """A job, as its log tells it.

    Only ``evolve`` changes it, and in place: a log has millions of records.
    """

    spec: JobSpec | None = None
    """The job; None before the log's first record."""
    job_state: JobState = JobState.STARTING
    failure: Failure | None = None
    """Why the job has to end; the first reason stays."""
    stop_reason: str = ""
    """Why the job was asked to stop; empty: no request."""
    stopped_by: Service = Service.CLIENT
    """The service that asked it to stop: a ps or worker does so if its storage is full."""
    workers: int = 0
    ps: int = 0
    left_out: tuple[int, ...] = ()
    """Numbers below the highest wanted one whose workers were asked to leave, or replaced by spares."""
    placement: Placement = field(default_factory=lambda: Placement.even(1))
    """The latest version that was decided."""
    is_placement_published: bool = True
    """Whether this run of the job has ordered its publication."""
    foreign_placement: int = 0
    """The latest version of the placement that a worker went by and no master on this log has decided; 0: none. A later
    one replaces it: another client wrote it, or the end of the log was lost."""
    move: Move | None = None
    ring: Ring = field(default_factory=Ring)
    """Jobs with AllreduceStrategy: the ring of workers."""
    unreadable: set[PodName] = field(default_factory=set)
    """Ps whose last snapshot could not be read for a move; a ps that starts again can restore an older one."""
    seq: int = 0
    """Log sequence of the last applied input; decisions don't count, each follows an input."""
    last_id: tuple[Incarnation, int] = (NOBODY, 0)
    """Incarnation and number of that input's envelope."""
    master_seq: int = 0
    """Log sequence of the last record of a master: the next append of a master names it."""
    unreadable_messages: UnreadableMessages = field(default_factory=UnreadableMessages)
    """Messages that were put aside because they can't be read."""
    term: int = 0
    """Term of the latest master; 0: there was none."""
    submitted_s: float = 0.0
    """When the job was submitted. All times here are seconds since 1970, by the sender's clock if that can be right."""
    clock_s: float = 0.0
    """The latest time of a process that keeps the job's clock."""
    now_s: float = 0.0
    """The latest time of any record, by the sender's clock if that can be right."""
    paused_s: float = 0.0
    """Seconds between the end of a run and the start of the next one, summed; no duration includes them."""
    first_step_s: float = 0.0
    """When a worker began the first task that it finished; 0: no task is finished."""
    trained_s: float = 0.0
    """When a task became complete last; 0: no task is complete."""
    ended_s: float = 0.0
    """When the job ended; 0: it has not ended."""
    resumes: int = 0
    run: Incarnation = NOBODY
    """Incarnation of the launcher that submitted or resumed the job last."""
    number_floor: int = 0
    """Evaluations and merges get higher numbers: a lost part of the log may have used lower ones."""
    lost_logs: list[tuple[float, LostLog]] = field(default_factory=list)
    """Lost parts of the log, each with the time of the resume that continued without it."""
    seen: dict[Incarnation, int] = field(default_factory=dict)
    """Highest number of the applied envelopes of each incarnation: lower numbers are repetitions, except those in
    ``skipped``."""
    skipped: dict[Incarnation, set[int]] = field(default_factory=dict)
    """Lower numbers that may still come: a process sends several events at once, and repeats those that are not
    acknowledged."""
    senders: dict[Incarnation, tuple[Incarnation, PodInstance]] = field(default_factory=dict)
    """Incarnation -> the run and the instance that its first events have declared."""
    pods: dict[PodName, Pod] = field(default_factory=dict)
    pods_settled: bool = False
    """Whether no pod has to be started or stopped. The records of tasks, which are most of the log, leave it true."""
    training: Training | None = None
    running_attempts: dict[TaskRef, dict[Incarnation, RunningAttempt]] = field(default_factory=dict)
    """Task -> worker's incarnation -> its attempt; a task that is executed speculatively has two."""
    deliveries_to_return: list[str] = field(default_factory=list)
    """Reply subjects of deliveries whose worker has ended."""
    failures: dict[TaskRef, list[TaskFailed]] = field(default_factory=dict)
    """Task -> its failed attempts; those of a train task are forgotten once it is complete."""
    crashes: dict[RunningBatch, set[PodInstance]] = field(default_factory=dict)
    """Batch -> instances of the workers that crashed while running it."""
    silences: dict[RunningBatch, set[PodInstance]] = field(default_factory=dict)
    """Batch -> instances of the workers that were killed while running it, because they were unresponsive."""
    evaluations: list[Evaluation] = field(default_factory=list)
    """The latest ones, and of earlier ones those that are still needed."""
    forgets_evaluations: bool = True
    """Whether evaluations are forgotten; False for readers of the log that show all of them. Decisions don't differ."""
    forgotten_evaluations: int = 0
    """How many evaluations with results are forgotten: the log has them."""
    evaluation_due: list[str] = field(default_factory=list)
    """Triggers of an evaluation that has not started yet, as text."""
    pinned_epochs: int = 0
    """The last epoch whose end was pinned, from 1: its evaluation runs or is done."""
    step_reached: int = 0
    """The last step that triggered an evaluation: a restored ps reports some steps once more."""
    pins_to_close: set[tuple[PodName, int]] = field(default_factory=set)
    """(ps, evaluation) of pins that are not needed any more."""
    is_replanned: bool = False
    """Whether the number of epochs has changed: training ended early, or a resume added some."""
    new_output: str = ""
    """URI of the output that a resume has given; empty: the submitted one, which workers know."""
    best: Best = field(default_factory=Best)
    prediction: Prediction = field(default_factory=Prediction)
    callbacks: Callbacks = field(default_factory=Callbacks)
    merges: dict[int, Merge] = field(default_factory=dict)
    """Number of the merge task -> its merge."""
    last_forgotten_merge: int = 0
    """The highest number of a merge task that is no longer in ``merges``: those of evaluations, and sums of states."""
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
    """URI of a damaged object -> the report about its snapshot."""
    tables: dict[str, dict[PodName, TableCounted]] = field(default_factory=dict)
    """Table with ``min_count`` or ``expire_after`` -> ps -> what it has counted last."""
    repaired: int = 0
    """Tasks that an audit found missing in a ledger and that were dispatched again."""
    measured: RunMeasured | None = None
    """The work of the present run so far; None: the process adapter has not measured it yet."""
    processes: dict[PodName, ProcessMeasured] = field(default_factory=dict)
    """What the processes of the present run have used; empty before its end."""
    pending_commands: list[tuple[int, Decided]] = field(default_factory=list)
    """Decisions without a recorded outcome, with their log sequences: a successor runs their commands again."""

    @property
    def job(self) -> JobSpec:
        """The spec, once it is known. Raises ``LookupError``: the log has no JobSubmitted yet."""
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
        """The present evaluation, if any."""
        last = self.evaluations[-1] if self.evaluations else None
        return last if last and last.phase not in (EvaluationPhase.DONE, EvaluationPhase.ABANDONED) else None

    @property
    def evaluation_tasks(self) -> int:
        """Tasks of one evaluation, or of a prediction job; 0 for a job without validation data."""
        return self.job.validation.tasks if self.job.validation else 0

    def pods_of(self, service: Service) -> Iterator[Pod]:
        """The pods of one service, by name."""
        return iter(sorted((pod for pod in self.pods.values() if pod.service is service), key=_name_of))

    def running(self, service: Service) -> list[Pod]:
        """The pods of one service that have reported ready."""
        return [pod for pod in self.pods_of(service) if pod.phase is PodPhase.RUNNING]

    @property
    def wanted_workers(self) -> tuple[PodName, ...]:
        """The workers that should run, by number."""
        if not self.left_out:
            return pod_names(Service.WORKER, self.workers)
        numbers = (number for number in count() if number not in self.left_out)
        return tuple(pod_name(Service.WORKER, number) for number in islice(numbers, self.workers))

    def want_workers(self, numbers: Set[int]) -> None:
        """Want the workers with these numbers, which are as many as are wanted."""
        self.left_out = tuple(number for number in range(max(numbers, default=0)) if number not in numbers)

    @property
    def spares(self) -> tuple[PodName, ...]:
        """The spare workers that should run: those that wait or will, then the lowest names that are not wanted."""
        if not self.job.spare_workers:
            return ()
        wanted = set(self.wanted_workers)
        begun = sorted(
            (pod.phase is not PodPhase.WAITING, pod_number(pod.name))
            for pod in self.pods.values()
            if pod.phase in _MAY_BE_PROMOTED and pod.service is Service.WORKER and not pod.is_promoted
        )
        names = chain((number for _, number in begun), count())
        others = (name for name in (pod_name(Service.WORKER, number) for number in names) if name not in wanted)
        return tuple(dict.fromkeys(islice(others, len(begun) + self.job.spare_workers)))[: self.job.spare_workers]

    def is_spare(self, pod: Pod) -> bool:
        """Whether a pod is that of a worker that only waits for the place of another one."""
        return (
            self.job.spare_workers > 0
            and pod.service is Service.WORKER
            and not pod.is_promoted
            and pod.name not in self.wanted_workers
        )

    @property
    def running_pods(self) -> list[Pod]:
        """The pods of all services that have reported ready."""
        return [pod for pod in self.pods.values() if pod.phase is PodPhase.RUNNING]

    @property
    def watched(self) -> set[tuple[PodName, Incarnation]]:
        """The processes whose heartbeats are expected: those that run or wait, and members that have no model yet."""
        members = {
            (one.worker, one.incarnation) for one in self.ring.members if self.is_member(one.worker, one.incarnation)
        }
        alive = (PodPhase.RUNNING, PodPhase.WAITING)
        return {(pod.name, pod.incarnation) for pod in self.pods.values() if pod.phase in alive} | members

    def is_member(self, worker: PodName, incarnation: Incarnation) -> bool:
        """Whether the present process of a worker is this one, and has asked to be in the ring."""
        pod = self.pods.get(worker)
        return pod is not None and pod.has_process and pod.instance == self.ring.instances.get(incarnation)

    @property
    def holders(self) -> tuple[PodName, ...]:
        """The ps that own partitions of the model, the one in a worker included."""
        return self.placement.owner_names(self.spec) if self.spec else self.placement.holder_names

    def owned(self, ps: PodName) -> Ranges:
        """The partitions of a ps. Beside a ring there are those of the dense variables, and those of the tables."""
        if ps == SERVED_REPLICA and self.job.has_ring:
            return ALL
        return self.placement.partitions(pod_number(ps))

    @property
    def running_holders(self) -> list[Pod]:
        """The ps that own partitions and have reported ready."""
        pods = (self.pods.get(name) for name in sorted(self.holders))
        return [pod for pod in pods if pod is not None and pod.phase is PodPhase.RUNNING]

    @property
    def all_ps_running(self) -> bool:
        """Whether every ps that owns partitions is ready."""
        for name in self.holders:
            pod = self.pods.get(name)
            if pod is None or pod.phase is not PodPhase.RUNNING:
                return False
        return self.spec is not None

    @property
    def all_ps_have_model(self) -> bool:
        """Whether every ps that owns partitions is ready and holds its part of the model."""
        return self.all_ps_running and all(self.pods[name].has_model for name in self.holders)

    def fail(self, message: str, guilty: str = "", kind: FailureKind = FailureKind.ENVIRONMENT) -> None:
        """Record why the job has to end; the first reason stays."""
        if self.failure is None:
            self.failure = Failure(message=message, guilty=guilty, kind=kind)

    def check_records(self, what: str, done: str, records: int, checksum: int) -> None:
        """Fail a job whose one ``what`` has not ``done`` exactly the records of the data's index."""
        expected = self.job.validation.records if self.job.validation else 0
        if (records, checksum) != (expected, self.job.checksum):
            self.fail(
                f"The audit found that the {what} was not exact: {records} records with checksum {checksum:016x} were "
                f"{done}, the data has {expected} with {self.job.checksum:016x}."
            )

    def replan(self, epochs: int) -> None:
        """Change the number of epochs. Tasks that both plans have are the same ones."""
        self.spec = self.job.with_epochs(epochs)
        self.is_replanned = True
        if self.training:
            self.training.plan = self.spec.plan

    def close_pins(self, evaluation: Evaluation) -> None:
        """Have the pins of an evaluation closed that their ps still hold."""
        for ps, incarnation in evaluation.incarnations.items():
            pod = self.pods.get(ps)
            if pod and pod.incarnation == incarnation:
                self.pins_to_close.add((ps, evaluation.number))
