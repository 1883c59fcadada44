"""What a launcher learns from the log and the heartbeats while its job runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from elasticdl.cli.local.time_split import TimeSplit
from elasticdl.master.core import State, evolve
from elasticdl.master.snapshots.recovery import Recovered
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, LogRecord, PodExited, PsStarted, SnapshotTaken, StopRequested
from elasticdl.shared.names import Incarnation, PodName, Service, pod_name

LATELY_S = 2.0
"""Heartbeats of two processes are not farther apart than so many seconds."""
GOODPUT_BATCHES_MIN = 100
"""Batches below which goodput says nothing."""


class Audience(Protocol):
    """Who is told what happens."""

    def say(self, line: str) -> None:
        """A line of the launcher's own."""
        ...

    def begin(self, state: State) -> None:
        """What happened before this launcher took over; ``state.seq`` is 0 for a new job."""
        ...

    def record(self, record: LogRecord, state: State) -> None:
        """A record was folded into ``state``."""
        ...

    def tick(self, state: State, beats: Mapping[PodName, Beat], pids: Mapping[str, int], goodput: float | None) -> None:
        """Some time has passed; called several times a second.

        Args:
            state: the job as folded so far.
            beats: the last one of each process.
            pids: master and broker, which are in no log.
            goodput: batches absorbed by batches computed; None: not known yet.
        """
        ...


class Follower:
    """Folds the log as it grows.

    Records are folded in the order of the log, decisions a moment later than the master did; exact numbers come from
    ``recover``, which folds as the master does.

    Args:
        audience: is told of every record.
        past: the job before this launcher's first record.
    """

    def __init__(self, audience: Audience, past: Recovered) -> None:
        self.state = past.state
        self.beats: dict[PodName, Beat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self.first_gradient_s = 0.0
        self._audience = audience
        self._past_seq = past.read_seq
        self._restored_steps: dict[PodName, int] = {}
        self._steps: dict[PodName, tuple[Incarnation, int]] = {}
        """The life of each ps that was heard last, and the last step that it told of."""
        self._first_steps: dict[PodName, int] = {}
        """Step of each ps when it was first seen in this run."""
        self._computed: dict[tuple[PodName, Incarnation], float] = {}
        self._computed_before: deque[tuple[float, int]] = deque()
        self._time = TimeSplit()
        audience.begin(self.state)

    @property
    def batches_absorbed(self) -> int:
        """Batches that the ps have absorbed since this launcher listens, as of their last beats and snapshots."""
        if self.state.job_state is JobState.SUCCEEDED:
            return self.state.plan.batches - self._step_at_start
        # The last step of a ps that has handed everything over stays as it was; one that gets some has none yet.
        steps = [self._steps[ps][1] for ps in self.state.holders if ps in self._steps]
        return max(0, min(steps, default=0) - self._step_at_start)

    @property
    def _step_at_start(self) -> int:
        return min(self._first_steps.values(), default=0)

    @property
    def batches_computed(self) -> int:
        """Batches that workers, dead ones too, have computed since this launcher listens, as of their last beats."""
        return int(sum(self._computed.values()))

    @property
    def goodput(self) -> float | None:
        """Batches absorbed by batches computed, so far in this run; None while that says little.

        Counts of ps and workers are of different moments: what was computed in the last seconds is not counted against
        the ps.
        """
        computed = self.batches_computed
        if computed < GOODPUT_BATCHES_MIN:
            return None
        lately = computed - (self._computed_before[0][1] if self._computed_before else computed)
        return min(1.0, (self.batches_absorbed + lately) / computed)

    def worker_seconds(self) -> dict[str, float]:
        """Where the workers' time went while the job trained."""
        computed = max(self.batches_computed, self.batches_absorbed)
        return self._time.seconds.split(absorbed=self.batches_absorbed, computed=computed)

    async def follow(self, log: EventLog) -> None:
        """Read the log for ever."""
        async for record in log.read(self._past_seq):
            self._take(record)

    async def listen(self, bus: Bus) -> None:
        """Hear the heartbeats for ever."""
        async for beat in bus.signals.beats():
            self.beats[beat.name] = beat
            if beat.service is Service.WORKER:
                self._computed[beat.name, beat.incarnation] = beat.metrics.get("batches", 0.0)
                self._computed_before.append((beat.time_s, self.batches_computed))
                while self._computed_before[0][0] < beat.time_s - LATELY_S:
                    self._computed_before.popleft()
                self._time.beat(beat)
            step = int(beat.metrics.get("step", 0.0))
            if beat.service is Service.PS:
                self._note_step(beat.name, beat.incarnation, step)
            restored = self._restored_steps.get(beat.name)
            if not self.first_gradient_s and beat.service is Service.PS and restored is not None and step > restored:
                self.first_gradient_s = beat.time_s

    def _note_step(self, ps: PodName, life: Incarnation, step: int) -> None:
        """A ps has told of a step; beats and the log may overtake each other, and a life's steps only grow."""
        former, known = self._steps.get(ps, (life, 0))
        self._steps[ps] = (life, max(step, known) if former == life else step)

    def _note_workers(self, envelope: Envelope) -> None:
        """Who is wanted, who has ended and what it had computed until then."""
        state, event = self.state, envelope.event
        training = state.job_state in (JobState.STARTING, JobState.TRAINING)
        self._time.want(_workers(state) if training else (), envelope.time_s)
        if isinstance(event, PodExited) and event.service is Service.WORKER:
            self._time.ended(event.pod, envelope.time_s)
            pod = state.pods.get(event.pod)
            if pod and event.batches:
                # Its last beat was up to a second old.
                self._computed[pod.name, pod.incarnation] = event.batches

    def _lives(self, envelope: Envelope) -> bool:
        """Whether it was said by the present life of its pod."""
        pod = self.state.pods.get(envelope.name)
        return pod is not None and pod.incarnation == envelope.incarnation

    def _take(self, record: LogRecord) -> None:
        evolve(self.state, record)
        envelope = record.envelope
        self._note_workers(envelope)
        match envelope.event:
            case PsStarted(ledgers=ledgers):
                step = min((group.ledger.step for group in ledgers), default=0)
                self._restored_steps[envelope.name] = step
                self._note_step(envelope.name, envelope.incarnation, step)
                if envelope.name in self.state.holders:
                    self._first_steps.setdefault(envelope.name, step)
            case SnapshotTaken(ledgers=ledgers, move=0) if ledgers and self._lives(envelope):
                self._note_step(envelope.name, envelope.incarnation, min(group.ledger.step for group in ledgers))
            case StopRequested() if envelope.service is Service.CLIENT:
                self.stopped_by_client = True
            case _:
                pass
        self._audience.record(record, self.state)
        if self.state.is_final:
            self.final.set()


def _workers(state: State) -> list[PodName]:
    return [pod_name(Service.WORKER, number) for number in range(state.workers)]
