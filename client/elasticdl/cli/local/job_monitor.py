"""Follows a job from the launcher: folds its event log as it grows, and collects the heartbeats of its processes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from elasticdl.cli.local.worker_time import WorkerTime
from elasticdl.master.core import State, evolve
from elasticdl.master.snapshots.recovery import Recovered
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, LogRecord, PodExited, PsStarted, SnapshotTaken, StopRequested
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import Incarnation, PodName, Service, pod_name

RECENT_S = 2.0
"""Heartbeats of two processes that describe the same moment are less than this many seconds apart."""
GOODPUT_BATCHES_MIN = 100
"""Batches below which goodput is not shown, because it would say nothing."""


class RecordObserver(Protocol):
    """Is called about the event log of a job."""

    def on_start(self, state: State) -> None:
        """``state`` is what happened before; its ``seq`` is 0 for a new job."""
        ...

    def on_record(self, record: LogRecord, state: State) -> None:
        """A record was folded into ``state``."""
        ...


class Observer(RecordObserver, Protocol):
    """Is called about everything that happens to a local job."""

    def on_message(self, line: str) -> None:
        """The launcher has a line for the user."""
        ...

    def on_accepted(self) -> None:
        """The job is on its log and its master was started."""
        ...

    def on_terminal_closed(self) -> None:
        """The user closed the terminal; the job continues."""
        ...

    def on_tick(
        self, state: State, heartbeats: Mapping[PodName, Heartbeat], pids: Mapping[str, int], goodput: float | None
    ) -> None:
        """Time has passed; called several times a second.

        Args:
            state: the job as folded so far.
            heartbeats: the last heartbeat of each process.
            pids: process ids of master and NATS server, which are not on the log.
            goodput: batches absorbed by batches computed; None: unknown.
        """
        ...


class JobMonitor:
    """Folds the log as it grows.

    Records are folded in the order of the log, so decisions are folded a little later than the master took them. For
    exact numbers use ``recover``, which folds as the master does.

    Args:
        observer: is called for every record.
        past: the job before this launcher's first record.
    """

    def __init__(self, observer: RecordObserver, past: Recovered) -> None:
        self.state = past.state
        self.heartbeats: dict[PodName, Heartbeat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self.first_gradient_s = 0.0
        self._observer = observer
        self._past_seq = past.read_seq
        self._restored_steps: dict[PodName, int] = {}
        self._steps: dict[PodName, tuple[Incarnation, int]] = {}
        """The latest incarnation of each ps, and the highest step that it reported."""
        self._first_steps: dict[PodName, int] = {}
        """The first step of each ps in this run."""
        self._computed: dict[tuple[PodName, Incarnation], float] = {}
        self._computed_before: deque[tuple[float, int]] = deque()
        self._worker_time = WorkerTime()
        observer.on_start(self.state)

    @property
    def batches_absorbed(self) -> int:
        """Batches that the ps absorbed in this run, by their last heartbeats and snapshots."""
        if self.state.job_state is JobState.SUCCEEDED:
            return self.state.plan.batches - self._step_at_start
        # A ps that has moved everything away keeps its last step; a new one has none yet.
        steps = [self._steps[ps][1] for ps in self.state.holders if ps in self._steps]
        return max(0, min(steps, default=0) - self._step_at_start)

    @property
    def _step_at_start(self) -> int:
        return min(self._first_steps.values(), default=0)

    @property
    def batches_computed(self) -> int:
        """Batches that workers, dead ones too, computed in this run, by their last heartbeats."""
        return int(sum(self._computed.values()))

    @property
    def goodput(self) -> float | None:
        """Batches absorbed by batches computed in this run; None if there are too few.

        The counts of ps and workers are from different moments. Batches computed in the last seconds may be absorbed
        already without the ps having reported it, so they are not counted as lost.
        """
        computed = self.batches_computed
        if computed < GOODPUT_BATCHES_MIN:
            return None
        recent = computed - (self._computed_before[0][1] if self._computed_before else computed)
        return min(1.0, (self.batches_absorbed + recent) / computed)

    def measured(self, started_s: float) -> RunMeasured:
        """The work of this run so far.

        Args:
            started_s: when the user entered the command, seconds since the epoch.
        """
        seconds = self._worker_time.seconds
        return RunMeasured(
            started_s=started_s,
            first_gradient_s=self.first_gradient_s,
            batches_absorbed=self.batches_absorbed,
            # Heartbeats are up to a second old, but absorbed batches were certainly computed.
            batches_computed=max(self.batches_computed, self.batches_absorbed),
            working_s=seconds.working_s,
            stalled_s=seconds.stalled_s,
            starting_s=seconds.starting_s,
        )

    async def follow(self, log: EventLog) -> None:
        """Read the log; never returns."""
        async for record in log.read(self._past_seq):
            self._fold(record)

    async def listen(self, bus: Bus) -> None:
        """Listen to heartbeats; never returns."""
        async for heartbeat in bus.signals.heartbeats():
            self.heartbeats[heartbeat.name] = heartbeat
            if heartbeat.service is Service.WORKER:
                self._computed[heartbeat.name, heartbeat.incarnation] = heartbeat.metrics.get("batches", 0.0)
                self._computed_before.append((heartbeat.time_s, self.batches_computed))
                while self._computed_before[0][0] < heartbeat.time_s - RECENT_S:
                    self._computed_before.popleft()
                self._worker_time.on_heartbeat(heartbeat)
            step = int(heartbeat.metrics.get("step", 0.0))
            if heartbeat.service is Service.PS:
                self._on_step(heartbeat.name, heartbeat.incarnation, step)
            restored = self._restored_steps.get(heartbeat.name)
            if (
                not self.first_gradient_s
                and heartbeat.service is Service.PS
                and restored is not None
                and step > restored
            ):
                self.first_gradient_s = heartbeat.time_s

    def _on_step(self, ps: PodName, incarnation: Incarnation, step: int) -> None:
        """A ps reported a step. Heartbeats and log may overtake each other; steps of an incarnation only grow."""
        former, known = self._steps.get(ps, (incarnation, 0))
        self._steps[ps] = (incarnation, max(step, known) if former == incarnation else step)

    def _account_workers(self, envelope: Envelope) -> None:
        """Update which workers are expected, and what a worker that ended had computed."""
        state, event = self.state, envelope.event
        training = state.job_state in (JobState.STARTING, JobState.TRAINING)
        self._worker_time.expect(_workers(state) if training else (), envelope.time_s)
        if isinstance(event, PodExited) and event.service is Service.WORKER:
            self._worker_time.on_exit(event.pod, envelope.time_s)
            pod = state.pods.get(event.pod)
            if pod and event.batches:
                # Its last heartbeat was up to a second old.
                self._computed[pod.name, pod.incarnation] = event.batches

    def _is_current(self, envelope: Envelope) -> bool:
        """Whether the sender is the current incarnation of its pod."""
        pod = self.state.pods.get(envelope.name)
        return pod is not None and pod.incarnation == envelope.incarnation

    def _fold(self, record: LogRecord) -> None:
        evolve(self.state, record)
        envelope = record.envelope
        self._account_workers(envelope)
        match envelope.event:
            case PsStarted(ledgers=ledgers):
                step = min((group.ledger.step for group in ledgers), default=0)
                self._restored_steps[envelope.name] = step
                self._on_step(envelope.name, envelope.incarnation, step)
                if envelope.name in self.state.holders:
                    self._first_steps.setdefault(envelope.name, step)
            case SnapshotTaken(ledgers=ledgers, move=0) if ledgers and self._is_current(envelope):
                self._on_step(envelope.name, envelope.incarnation, min(group.ledger.step for group in ledgers))
            case StopRequested() if envelope.service is Service.CLIENT:
                self.stopped_by_client = True
            case _:
                pass
        self._observer.on_record(record, self.state)
        if self.state.is_final:
            self.final.set()


def _workers(state: State) -> list[PodName]:
    return [pod_name(Service.WORKER, number) for number in range(state.workers)]
