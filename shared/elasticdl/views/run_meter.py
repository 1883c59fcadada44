"""The work of a run, from its records and heartbeats: batches absorbed and computed, and where the time went. Pure.

The launcher measures jobs on one machine, the master those on a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from elasticdl.master.core import State
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import (
    Envelope,
    ExitCause,
    PodExited,
    PsStarted,
    SnapshotTaken,
    TaskFinished,
    TasksFinished,
    TasksTaken,
    TaskTaken,
    one_by_one,
)
from elasticdl.shared.messages.measurements import ProcessMeasured, RunMeasured
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import NOBODY, Incarnation, PodName, Purpose, Service
from elasticdl.views.lost_time import GOODPUT_BATCHES_MIN, WorkerTime, goodput

RECENT_S = 2.0
"""Heartbeats of two processes that describe the same moment are less than this many seconds apart."""
_NO_PROCESSES: Mapping[PodName, Incarnation] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class _Use:
    """What one process has used, by its last heartbeat.

    Attributes:
        rss_bytes: its largest resident memory.
        data: all metrics of its last heartbeat, with what reading data from object storage has cost.
        data_at_first: those of its first one, if a former meter has counted them.
    """

    cpu_s: float = 0.0
    rss_bytes: float = 0.0
    data: Mapping[str, float] = field(default_factory=dict)
    data_at_first: Mapping[str, float] = field(default_factory=dict)


class RunMeter:
    """Measures a run from its records, in the order of the log, and from heartbeats.

    Args:
        former: what another meter has measured of this run before; None: there was none. What happened between the two
            is not measured.
        running: the processes that run already, which that meter has counted; no incarnation: it is unknown.
    """

    def __init__(
        self, former: RunMeasured | None = None, running: Mapping[PodName, Incarnation] = _NO_PROCESSES
    ) -> None:
        self._continues = former is not None
        self._former_processes = dict(running) if former else {}
        self._former = former or RunMeasured(started_s=0.0)
        self._first_gradient_s = self._former.first_gradient_s
        self._restored_steps: dict[PodName, int] = {}
        self._steps: dict[PodName, tuple[Incarnation, int]] = {}
        """The latest incarnation of each ps, and the highest step that it reported."""
        self._first_steps: dict[PodName, int] = {}
        """The first step of each ps in this run."""
        self._computed: dict[tuple[PodName, Incarnation], float] = {}
        self._computed_at_first: dict[tuple[PodName, Incarnation], float] = {}
        """What the workers had computed at their first heartbeats, if a former meter has counted that."""
        self._computed_before: deque[tuple[float, int]] = deque()
        self._worker_time = WorkerTime()
        self._expected_workers: tuple[int, tuple[int, ...]] = (0, ())
        self._taken_s: dict[Incarnation, float] = {}
        """When each worker took its first task in this run."""
        self._have_finished: set[Incarnation] = set()
        """Workers that have reported a batch."""
        self._uses: dict[PodName, dict[Incarnation, _Use]] = {}

    def batches_absorbed(self, state: State) -> int:
        """Batches that the ps absorbed in this run, by their last heartbeats and snapshots."""
        first, before = min(self._first_steps.values(), default=0), self._former.batches_absorbed
        if state.job_state is JobState.SUCCEEDED:
            return min(before + state.plan.batches - first, state.plan.batches)
        # A ps that has moved everything away keeps its last step; a new one has none yet.
        steps = [self._steps[ps][1] for ps in state.holders if ps in self._steps]
        return before + max(0, min(steps, default=0) - first)

    @property
    def batches_computed(self) -> int:
        """Batches that workers, dead ones too, computed in this run, by their last heartbeats."""
        own = sum(self._computed.values()) - sum(self._computed_at_first.values())
        return self._former.batches_computed + int(own)

    def goodput(self, state: State) -> float | None:
        """Batches absorbed by batches computed in this run; None if there are too few.

        The counts of ps and workers are from different moments. Batches computed in the last seconds may be absorbed
        already without the ps having reported it, so they are not counted as lost.
        """
        computed = self.batches_computed
        recent = computed - (self._computed_before[0][1] if self._computed_before else computed)
        return goodput(self.batches_absorbed(state) + recent, computed, GOODPUT_BATCHES_MIN)

    def measured(self, state: State, started_s: float) -> RunMeasured:
        """The work of this run so far; ``started_s``: when the user entered the command, seconds since the epoch."""
        seconds, former = self._worker_time.seconds, self._former
        absorbed = self.batches_absorbed(state)
        return RunMeasured(
            started_s=former.started_s or started_s,
            first_gradient_s=self._first_gradient_s,
            batches_absorbed=absorbed,
            # Heartbeats are up to a second old, but absorbed batches were certainly computed.
            batches_computed=max(self.batches_computed, absorbed),
            working_s=former.working_s + seconds.working_s,
            stalled_s=former.stalled_s + seconds.stalled_s,
            starting_s=former.starting_s + seconds.starting_s,
            data_requests=former.data_requests + self._data("data_requests"),
            data_fetched_bytes=former.data_fetched_bytes + self._data("data_fetched_bytes"),
            data_cached_bytes=former.data_cached_bytes + self._data("data_cached_bytes"),
        )

    def _data(self, metric: str) -> int:
        """The sum of a metric over all workers, dead ones too, since this meter began."""
        uses = [use for incarnations in self._uses.values() for use in incarnations.values()]
        return int(sum(use.data.get(metric, 0.0) - use.data_at_first.get(metric, 0.0) for use in uses))

    def processes(self, state: State) -> Iterable[ProcessMeasured]:
        """What the processes of each name have used, by their last heartbeats."""
        for name, uses in sorted(self._uses.items()):
            starts = state.pods[name].starts if name in state.pods else len(uses)
            yield ProcessMeasured(
                process=name,
                cpu_s=round(sum(use.cpu_s for use in uses.values()), 2),
                rss_max_bytes=int(max(use.rss_bytes for use in uses.values())),
                restarts=max(0, starts - 1),
            )

    def on_record(self, envelope: Envelope, state: State) -> None:
        """A record was folded into ``state``."""
        envelope = replace(envelope, time_s=agreed_s(envelope.time_s, state.clock_s))
        self._account_workers(envelope, state)
        match envelope.event:
            case PsStarted(ledgers=ledgers):
                step = min((group.ledger.step for group in ledgers), default=0)
                self._restored_steps[envelope.name] = step
                self._on_step(envelope.name, envelope.incarnation, step)
                if envelope.name in state.holders:
                    self._first_steps.setdefault(envelope.name, step)
            case SnapshotTaken(ledgers=ledgers, move=0) if ledgers and _is_current(envelope, state):
                self._on_step(envelope.name, envelope.incarnation, min(group.ledger.step for group in ledgers))
            case TaskTaken() | TasksTaken():
                self._taken_s.setdefault(envelope.incarnation, envelope.time_s)
            case TaskFinished() | TasksFinished():
                self._on_finished(envelope)
            case _:
                pass

    def _on_finished(self, envelope: Envelope) -> None:
        """A worker's first finished tasks say when it began; a job of seconds may end before a heartbeat does."""
        taken_s = self._taken_s.get(envelope.incarnation)
        if taken_s is None or envelope.incarnation in self._have_finished:
            return
        finished = [
            each
            for each in one_by_one(envelope.event)
            # The batches of a merged epoch are those of all workers.
            if isinstance(each, TaskFinished) and each.batches and each.task.purpose is not Purpose.MERGE
        ]
        if not finished:
            return
        self._have_finished.add(envelope.incarnation)
        seconds = sum(each.times.total_s for each in finished)
        begun_s, batches = max(taken_s, envelope.time_s - seconds), sum(each.batches for each in finished)
        self._worker_time.on_finished(envelope.name, envelope.incarnation, batches, (begun_s, envelope.time_s))
        if finished[0].task.purpose is Purpose.TRAIN:
            first_s = begun_s + (envelope.time_s - begun_s) / batches
            self._first_gradient_s = min(first_s, self._first_gradient_s or first_s)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        """A process of the job has sent a heartbeat; its time is one that ``agreed_s`` accepts."""
        use = self._uses.setdefault(heartbeat.name, {}).setdefault(heartbeat.incarnation, _Use())
        use.cpu_s = heartbeat.metrics.get("cpu_s", 0.0)
        is_former = self._is_former(heartbeat)
        if is_former:
            use.data_at_first = use.data_at_first or heartbeat.metrics
        use.data = heartbeat.metrics
        use.rss_bytes = max(use.rss_bytes, heartbeat.metrics.get("rss_bytes", 0.0))
        if heartbeat.service is Service.WORKER:
            process, batches = (heartbeat.name, heartbeat.incarnation), heartbeat.metrics.get("batches", 0.0)
            self._computed[process] = batches
            if is_former:
                self._computed_at_first.setdefault(process, batches)
            self._computed_before.append((heartbeat.time_s, self.batches_computed))
            while abs(self._computed_before[0][0] - heartbeat.time_s) > RECENT_S:  # Clocks may step back.
                self._computed_before.popleft()
            self._worker_time.on_heartbeat(heartbeat)
        if heartbeat.service is not Service.PS:
            return
        step = int(heartbeat.metrics.get("step", 0.0))
        if self._continues:
            self._first_steps.setdefault(heartbeat.name, step)
        self._on_step(heartbeat.name, heartbeat.incarnation, step)
        restored = self._restored_steps.get(heartbeat.name)
        if not self._first_gradient_s and restored is not None and step > restored:
            self._first_gradient_s = heartbeat.time_s

    def _is_former(self, heartbeat: Heartbeat) -> bool:
        """Whether the sender ran before this meter began, so that a former meter has counted it."""
        if self._former_processes.get(heartbeat.name) == NOBODY:
            self._former_processes[heartbeat.name] = heartbeat.incarnation
        return self._former_processes.get(heartbeat.name) == heartbeat.incarnation

    def _on_step(self, ps: PodName, incarnation: Incarnation, step: int) -> None:
        """A ps reported a step. Heartbeats and log may overtake each other; steps of an incarnation only grow."""
        former, known = self._steps.get(ps, (incarnation, 0))
        self._steps[ps] = (incarnation, max(step, known) if former == incarnation else step)

    def _account_workers(self, envelope: Envelope, state: State) -> None:
        """Update which workers are expected, and what a worker that ended had computed."""
        event = envelope.event
        if isinstance(event, PodExited) and self._former_processes.get(event.pod) == NOBODY:
            del self._former_processes[event.pod]  # The next process of this name is a new one.
        is_training = state.job_state in (JobState.STARTING, JobState.TRAINING)
        expected = (state.workers, state.left_out) if is_training else (0, ())
        if expected != self._expected_workers:  # Few records change it, and there may be thousands of workers.
            self._worker_time.expect(state.wanted_workers if is_training else (), envelope.time_s)
            self._expected_workers = expected
        if isinstance(event, PodExited) and event.service is Service.WORKER:
            self._worker_time.on_exit(event.pod, envelope.time_s, has_hung=event.cause is ExitCause.HUNG)
            pod = state.pods.get(event.pod)
            if pod and event.batches:
                # Its last heartbeat was up to a second old.
                self._computed[pod.name, pod.incarnation] = event.batches


def _is_current(envelope: Envelope, state: State) -> bool:
    """Whether the sender is the current incarnation of its pod."""
    pod = state.pods.get(envelope.name)
    return pod is not None and pod.incarnation == envelope.incarnation
