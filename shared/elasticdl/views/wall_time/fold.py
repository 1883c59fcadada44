"""Where the wall time of a job went: every second is charged to one cause, with the events that prove it. Pure.

While a job trains, each of its N expected workers is charged one Nth of every second, by what it did: a ``Worker``
measures that time. A worker's work on a task is split by the times that it reports. They overlap, because a worker
reads and pulls ahead, so what is not computing is charged to what the computation waited for. While a job starts or
ends, all of its time has one cause. The causes sum to the wall time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, LogRecord, TaskFinished
from elasticdl.shared.messages.measurements import BatchSlow, RunMeasured
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import JobId, PodName, Purpose, Service
from elasticdl.views.points import ORDERED_ENDS
from elasticdl.views.wall_time.accounts import Sum, Worker
from elasticdl.views.wall_time.causes import WORK, Cause
from elasticdl.views.wall_time.slow_workers import Pace, without_slow_workers
from elasticdl.views.wall_time.task_parts import TaskWork, split
from elasticdl.views.wall_time.values import Phase, PhaseTime, WallTime

FIELDS: Mapping[type, Collection[str]] = MappingProxyType(
    {
        Envelope: ("service", "name", "time_s", "event"),
        events.TaskTaken: (),
        TaskFinished: ("task", "batches", "times"),
    }
)
"""What the fold reads of the most frequent events, see ``codec.envelope_decoder``."""
NOTHING_S = 1e-9
"""Causes of less time are left out: it is what rounding leaves of time that was moved to another cause."""
# A million events are folded, and looking up a member of an enumeration costs as much as ten other steps.
_KEEP_TIME = (Service.MASTER, Service.LAUNCHER)
"""Services whose clocks are the job's: those of other machines count if they are near."""
_TRAINING, _TRAIN = Phase.TRAINING, Purpose.TRAIN
_CLOSING_CAUSES = {
    Purpose.EXPORT: Cause.EXPORT,
    Purpose.EVALUATE: Cause.FINAL_EVALUATION,
    Purpose.MERGE: Cause.FINAL_EVALUATION,
}


class WallTimeFold:
    """Charges the time of a job, record by record."""

    def __init__(self) -> None:
        self._job = JobId("")
        self._kind_trains = True
        self._sums: dict[Cause, Sum] = {}
        self._now_s = 0.0
        self._began_s = 0.0
        self._share = 0.0
        """Seconds of training, each divided by the number of workers that were expected then."""
        self._lost_ps = 0.0
        """The same while a ps was away."""
        self._workers: dict[PodName, Worker] = {}
        self._paces: dict[PodName, Pace] = {}
        self._ps_away: dict[PodName, int] = {}
        """Ps that are away -> the event that says so."""
        self._last_lost_ps = 0
        self._last_again = 0
        """The last exit of a ps, and the last decision to dispatch tasks again."""
        self._pending: dict[PodName, int] = {}
        """Pods that can't start yet -> the event that says so."""
        self._finished = RangeSet()
        """Training tasks that were finished at least once."""
        self._phase = Phase.STARTING
        self._path: list[PhaseTime] = []
        self._phase_since: tuple[float, int] = (0.0, 0)
        self._closing = Cause.SNAPSHOTS
        self._cause_seq = 0
        self._gap: tuple[float, float, int] | None = None
        """The time before the present run until its first record: from, until, and the number of that record."""

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        envelope, seq = record.envelope, record.seq
        time_s, event = envelope.time_s, envelope.event
        if envelope.service not in _KEEP_TIME:
            time_s = agreed_s(time_s, self._now_s)
        if isinstance(event, events.JobResumed):
            self._resume(time_s, seq)
        elif not self._began_s:
            if not time_s:
                return
            self._began_s = self._now_s = time_s
            self._phase_since = (time_s, seq)
            self._gap = (0.0, time_s, seq)
            self._cause_seq = seq
        if time_s > self._now_s:
            self._advance(time_s)
        match event:  # Most events are the first ones here.
            case events.TaskTaken():
                self._taken(envelope.name, 1)
            case events.TaskFinished():
                self._work(envelope.name, (event,), seq)
            case _:
                self._apply(envelope, seq)

    def result(self) -> WallTime:
        """The wall time until the last record."""
        sums = {cause: Sum(each.seconds, dict(each.largest), each.least) for cause, each in self._sums.items()}
        for worker in self._workers.values():
            for cause, share, seq in self._unfinished(worker):
                sums.setdefault(cause, Sum()).add(share, seq)
        for cause, seconds, seq in without_slow_workers(self._paces):
            sums.setdefault(cause, Sum()).add(seconds, seq)
        parts = [each.part(cause) for cause, each in sums.items() if each.seconds > NOTHING_S]
        parts.sort(key=lambda part: -part.seconds)
        return WallTime(
            job=self._job, wall_s=self._now_s - self._began_s, parts=tuple(parts), path=tuple(self._whole_path())
        )

    def _whole_path(self) -> Iterator[PhaseTime]:
        yield from self._path
        since_s, seq = self._phase_since
        if self._now_s > since_s:
            yield PhaseTime(phase=self._phase, started_s=since_s, ended_s=self._now_s, seq=seq)

    # --- clocks --------------------------------------------------------------------------------------------------

    def _advance(self, time_s: float) -> None:
        """Time passes until a record."""
        spent_s = time_s - self._now_s
        self._now_s = time_s
        if self._phase is _TRAINING and self._workers:
            share = spent_s / len(self._workers)
            self._share += share
            if self._ps_away:
                self._lost_ps += share
            return
        self._charge(self._wall_cause(), spent_s, self._cause_seq)

    def _wall_cause(self) -> Cause:
        """What all time has as its cause at present."""
        match self._phase:
            case Phase.CLOSING:
                return self._closing
            case Phase.ENDED:
                return Cause.ENDING
            case Phase.PAUSED:
                return Cause.PAUSED
            case _:
                return Cause.PENDING if self._pending else Cause.STARTING

    def _charge(self, cause: Cause, seconds: float, seq: int) -> None:
        if seconds <= 0.0:
            return
        found = self._sums.get(cause)
        if found is None:
            found = self._sums[cause] = Sum()
        found.add(seconds, seq)

    def _enter(self, phase: Phase, seq: int) -> None:
        """A stage begins; what workers have done until now is charged."""
        if phase is self._phase:
            return
        if self._phase is Phase.TRAINING:
            for worker in self._workers.values():
                for cause, share, evidence in self._unfinished(worker, is_last=True):
                    self._charge(cause, share, evidence)
                self._mark(worker)
                worker.held = 0
        since_s, began = self._phase_since
        if self._now_s > since_s:
            self._path.append(PhaseTime(phase=self._phase, started_s=since_s, ended_s=self._now_s, seq=began))
        self._phase, self._phase_since, self._cause_seq = phase, (self._now_s, seq), seq
        if phase is Phase.TRAINING:
            for worker in self._workers.values():
                self._mark(worker)
        elif phase is Phase.CLOSING:
            self._closing = Cause.SNAPSHOTS

    def _mark(self, worker: Worker) -> None:
        """All time of a worker until now is charged."""
        worker.at_s, worker.at_share, worker.at_lost_ps = self._now_s, self._share, self._lost_ps
        worker.idle, worker.idle_from, worker.stalled = 0.0, self._share, 0.0
        if worker.stalled_from >= 0.0:
            worker.stalled_from = self._share

    # --- events --------------------------------------------------------------------------------------------------

    def _apply(self, envelope: Envelope, seq: int) -> None:  # noqa: C901  One case for each kind of event.
        event = envelope.event
        match event:
            case events.TasksTaken():
                self._taken(envelope.name, len(events.one_by_one(event)))
            case events.TasksFinished():
                finished = [each for each in events.one_by_one(event) if isinstance(each, TaskFinished)]
                self._work(envelope.name, finished, seq)
            case events.JobSubmitted():
                self._job, self._kind_trains = event.spec.job, event.spec.kind.trains
            case events.Decided():
                for command in event.commands:
                    self._obey(command, seq)
            case events.PodPending():
                self._pending.setdefault(event.pod, seq)
                self._wait_in(event.pod, Cause.PENDING, seq)
                self._cause_seq = seq if self._phase is Phase.STARTING else self._cause_seq
            case events.PodStarted():
                self._pending.pop(event.pod, None)
                self._wait_in(event.pod, Cause.STARTING, seq)
            case events.PodExited():
                self._exit(event, seq)
            case events.WorkerStarted():
                self._pending.pop(envelope.name, None)
                self._ready(envelope.name)
            case events.PsStarted():
                self._pending.pop(envelope.name, None)
                self._ps_away.pop(envelope.name, None)
            case events.TaskReturned() | events.TaskFailed():
                self._taken(envelope.name, -1)
            case BatchSlow():
                self._slow(envelope.name, event.seconds, seq)
            case events.HeartbeatsMissed():
                self._slow(event.pod, event.silent_s, seq)
            case RunMeasured():
                self._measured(event)
            case _:
                pass

    def _obey(self, command: commands.Command, seq: int) -> None:
        match command:
            case commands.PromoteWorker():
                if command.replaces != command.worker:
                    self._replace(command.replaces, command.worker)
                self._want(command.worker, seq)  # A spare, unless it has the place of another worker or its own.
            case commands.StartPod(service=Service.WORKER, is_spare=False):
                self._want(command.pod, seq)
            case commands.EnterState():
                self._enter(_PHASES[command.state], seq)
            case commands.Dispatch(again=True, purpose=Purpose.TRAIN):
                self._last_again = seq
            case commands.Dispatch() if self._phase is Phase.CLOSING and command.purpose in _CLOSING_CAUSES:
                self._closing, self._cause_seq = _CLOSING_CAUSES[command.purpose], seq
            case commands.TakeSnapshot() | commands.ReadLedgers() if self._phase is Phase.CLOSING:
                self._closing, self._cause_seq = Cause.SNAPSHOTS, seq
            case _:
                pass

    def _want(self, name: PodName, seq: int) -> None:
        if name not in self._workers:
            self._workers[name] = Worker(pace=self._paces.setdefault(name, Pace()), seq=seq)
            self._mark(self._workers[name])

    def _replace(self, name: PodName, spare: PodName) -> None:
        """A spare takes the place of a worker; until it is ready, its time is charged as that of the other one."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._charge_all(worker)
            worker.pace = self._paces.setdefault(spare, Pace())
            self._workers[spare] = worker

    def _wait_in(self, name: PodName, cause: Cause, seq: int) -> None:
        """A worker that is not ready waits for something else from now on."""
        worker = self._workers.get(name)
        if worker is None or worker.is_ready:
            return
        cause = worker.starting if cause is Cause.STARTING else cause
        if worker.cause is not cause:
            self._charge_all(worker)
            worker.cause, worker.seq = cause, seq

    def _ready(self, name: PodName) -> None:
        worker = self._workers.get(name)
        if worker is None or worker.is_ready:
            return
        self._charge_all(worker)
        worker.is_ready, worker.has_finished, worker.held = True, False, 0

    def _exit(self, event: events.PodExited, seq: int) -> None:
        is_ordered = event.cause in ORDERED_ENDS
        self._pending.pop(event.pod, None)
        if event.service is Service.PS and not is_ordered:
            self._ps_away.setdefault(event.pod, seq)
            self._last_lost_ps = seq
        worker = self._workers.get(event.pod)
        if worker is None:
            return
        self._charge_all(worker)
        worker.is_ready = worker.has_finished = False
        worker.held, worker.stalled_from = 0, -1.0
        worker.cause, worker.seq = Cause.LOST_WORKER, seq
        worker.was_lost = True
        if is_ordered and self._phase is Phase.TRAINING:
            del self._workers[event.pod]

    def _taken(self, name: PodName, tasks: int) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        if not worker.held and tasks > 0:
            worker.idle += self._share - worker.idle_from
        was_busy = worker.held > 0
        worker.held = max(0, worker.held + tasks)
        if was_busy and not worker.held:
            worker.idle_from = self._share

    def _slow(self, name: PodName, seconds: float, seq: int) -> None:
        """A worker has made no progress for some seconds; 0: it makes progress again."""
        worker = self._workers.get(name)
        if worker is None or not worker.is_ready:
            return
        if not seconds:
            if worker.stalled_from >= 0.0:
                worker.stalled += self._share - worker.stalled_from
            worker.stalled_from = -1.0
        elif worker.stalled_from < 0.0:
            since = self._share - seconds / max(1, len(self._workers))
            worker.stalled_from, worker.stalled_seq = max(since, worker.at_share, 0.0), seq

    def _measured(self, run: RunMeasured) -> None:
        """The user's command had begun before the first record of the run."""
        if self._gap is None or not run.started_s:
            return
        before_s, first_s, seq = self._gap
        self._gap = None
        started_s = max(run.started_s, before_s)
        seconds = first_s - started_s
        if seconds <= 0.0:
            return
        self._charge(Cause.PREPARING, seconds, seq)
        if before_s:
            self._charge_back(Cause.PAUSED, seconds)
        else:
            self._began_s = started_s
        at = next((place for place, each in enumerate(self._path) if each.ended_s >= first_s), len(self._path))
        if before_s and at < len(self._path) and self._path[at].phase is Phase.PAUSED:
            paused = self._path[at]
            self._path[at] = PhaseTime(
                phase=Phase.PAUSED, started_s=paused.started_s, ended_s=started_s, seq=paused.seq
            )
            at += 1
        self._path.insert(at, PhaseTime(phase=Phase.PREPARING, started_s=started_s, ended_s=first_s, seq=seq))

    def _charge_back(self, cause: Cause, seconds: float) -> None:
        self._sums[cause].seconds -= seconds

    def _resume(self, time_s: float, seq: int) -> None:
        """A run begins. Nothing of the former one runs any more."""
        self._enter(Phase.PAUSED, seq)
        self._workers.clear()
        self._ps_away.clear()
        self._pending.clear()
        before_s = self._now_s
        if time_s > before_s:
            self._advance(time_s)
        self._gap = (before_s, self._now_s, seq)
        self._enter(Phase.STARTING, seq)

    # --- workers -------------------------------------------------------------------------------------------------

    def _charge_all(self, worker: Worker) -> None:
        if self._phase is Phase.TRAINING:
            for cause, share, seq in self._unfinished(worker):
                self._charge(cause, share, seq)
        self._mark(worker)

    def _unfinished(self, worker: Worker, *, is_last: bool = False) -> Iterator[tuple[Cause, float, int]]:
        """What a worker's time since it was charged last is charged to, without a report about it.

        Args:
            is_last: training has ended.
        """
        if self._phase is not Phase.TRAINING:
            return
        share = self._share - worker.at_share
        if not worker.is_ready:
            yield worker.cause, share, worker.seq
            return
        idle = worker.idle + (self._share - worker.idle_from if not worker.held else 0.0)
        idle = min(share, max(0.0, idle))
        stalled = min(share - idle, self._stalled(worker))
        yield Cause.LAST_TASKS if is_last and not worker.held else Cause.NO_TASK, idle, worker.seq
        yield Cause.STALLED, stalled, worker.stalled_seq
        is_starting = not worker.has_finished and not stalled
        yield worker.starting if is_starting else Cause.UNREPORTED, share - idle - stalled, worker.seq

    def _stalled(self, worker: Worker) -> float:
        return worker.stalled + (self._share - worker.stalled_from if worker.stalled_from >= 0.0 else 0.0)

    def _work(self, name: PodName, finished: Sequence[TaskFinished], seq: int) -> None:
        """A worker reports tasks."""
        own: list[tuple[TaskFinished, bool]] = []
        aside_s = 0.0
        for each in finished:
            task = each.task
            is_training = task.purpose is _TRAIN
            repeated = is_training and not self._finished.add(task.number)
            if is_training or self._is_own(task.purpose):
                own.append((each, repeated))
            else:
                aside_s += each.times.total_s
        worker = self._workers.get(name)
        if worker is None:
            return
        if not worker.held:
            self._taken(name, len(finished))  # The log lacks the event that they were taken.
        if self._phase is _TRAINING and worker.is_ready and self._now_s > worker.at_s:
            self._charge_work(worker, own, aside_s, seq)
        self._taken(name, -len(finished))

    def _charge_work(self, worker: Worker, own: Sequence[tuple[TaskFinished, bool]], aside_s: float, seq: int) -> None:
        """Charge the time since the last report; ``aside_s``: seconds on tasks that are not the job's own."""
        share, seconds = self._share - worker.at_share, self._now_s - worker.at_s
        rate = share / seconds
        aside = aside_s * rate
        if not own:  # A small task between two batches: all else of this time belongs to the task that it interrupts.
            aside = min(aside, share)
            self._charge(Cause.EVALUATING, aside, seq)
            worker.at_share += aside
            worker.at_s += aside / rate if rate else 0.0
            return
        idle, stalled, lost_ps = min(share, worker.idle), self._stalled(worker), self._lost_ps - worker.at_lost_ps
        work = TaskWork(share, rate, idle, aside, stalled, lost_ps, not worker.has_finished)
        sums, pace = self._sums, worker.pace
        shares = pace.shares
        for cause, part in split(work, own):
            if cause in WORK:
                shares[cause] = shares.get(cause, 0.0) + part
                if cause in sums:  # Nearly always.
                    sums[cause].add(part, seq)
                    continue
            charged = worker.starting if cause is Cause.STARTING else cause
            self._charge(charged, part, self._proof(cause, worker, seq))
        batches, own_s = 0, 0.0
        for each, _ in own:
            times = each.times
            batches += each.batches
            own_s += times.total_s - times.wait_us / 1e6
        pace.report(batches, seconds, own_s, seq)
        worker.has_finished, worker.seq = True, seq
        self._mark(worker)

    def _is_own(self, purpose: Purpose) -> bool:
        """Whether tasks of a purpose are what the job is there for."""
        return purpose is Purpose.PREDICT or (purpose is Purpose.EVALUATE and not self._kind_trains)

    def _proof(self, cause: Cause, worker: Worker, seq: int) -> int:
        """The event behind a part of a worker's time; ``seq``: its report."""
        match cause:
            case Cause.LOST_PS:
                return self._last_lost_ps or seq
            case Cause.RECOMPUTED:
                return self._last_again or seq
            case Cause.STALLED:
                return worker.stalled_seq or seq
            case _:
                return seq


_PHASES = {
    JobState.STARTING: Phase.STARTING,
    JobState.TRAINING: Phase.TRAINING,
    JobState.CLOSING: Phase.CLOSING,
    JobState.STOPPING: Phase.CLOSING,
    JobState.SUCCEEDED: Phase.ENDED,
    JobState.FAILED: Phase.ENDED,
    JobState.STOPPED: Phase.ENDED,
}


def wall_time(records: Iterable[LogRecord]) -> WallTime:
    """Where the time of a log, or of the beginning of one, went."""
    fold = WallTimeFold()
    for record in records:
        fold.take(record)
    return fold.result()
