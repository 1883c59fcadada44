"""What a launcher learns from the log and the heartbeats while its job runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from elasticdl.master.core import State, evolve
from elasticdl.master.recovering import recover
from elasticdl.shared.beats import Beat
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.commands import JobState
from elasticdl.shared.events import LogRecord, PsStarted, StopRequested
from elasticdl.shared.names import Incarnation, PodName, Service


class Audience(Protocol):
    """Who is told what happens."""

    def say(self, line: str) -> None:
        """A line of the launcher's own."""
        ...

    def record(self, record: LogRecord, state: State, *, past: bool) -> None:
        """A record was folded into ``state``; ``past``: it happened before this launcher took over."""
        ...

    def tick(self, state: State, beats: Mapping[PodName, Beat], pids: Mapping[str, int]) -> None:
        """Some time has passed; called several times a second. ``pids``: master and broker, which are in no log."""
        ...


class Follower:
    """Folds the log as it grows.

    Records are folded in the order of the log, decisions a moment later than the master did; exact numbers come from
    ``read_state``, which folds as the master does.

    Args:
        audience: is told of every record.
        past: sequence number of the last record before this launcher's first.
    """

    def __init__(self, audience: Audience, past: int) -> None:
        self.state = State()
        self.beats: dict[PodName, Beat] = {}
        self.final = asyncio.Event()
        self.stopped_by_client = False
        self.first_gradient_s = 0.0
        self._audience = audience
        self._past = past
        self._restored_steps: dict[PodName, int] = {}
        self._first_steps: dict[PodName, int] = {}
        """Step of each ps when it was first seen in this run."""
        self._computed: dict[tuple[PodName, Incarnation], float] = {}

    @property
    def batches_absorbed(self) -> int:
        """Batches that the ps have absorbed since this launcher listens, as of their last beats."""
        if self.state.job_state is JobState.SUCCEEDED:
            return self.state.plan.batches - self._step_at_start
        steps = [beat.metrics.get("step", 0.0) for beat in self.beats.values() if beat.service is Service.PS]
        return max(0, int(min(steps, default=0)) - self._step_at_start)

    @property
    def _step_at_start(self) -> int:
        return min(self._first_steps.values(), default=0)

    @property
    def batches_computed(self) -> int:
        """Batches that workers, dead ones too, have computed since this launcher listens, as of their last beats."""
        return int(sum(self._computed.values()))

    async def follow(self, log: EventLog) -> None:
        """Read the log for ever."""
        async for record in log.read(0):
            self._take(record)

    async def listen(self, bus: Bus) -> None:
        """Hear the heartbeats for ever."""
        async for beat in bus.signals.beats():
            self.beats[beat.name] = beat
            if beat.service is Service.WORKER:
                self._computed[beat.name, beat.incarnation] = beat.metrics.get("batches", 0.0)
            step = beat.metrics.get("step", 0.0)
            restored = self._restored_steps.get(beat.name)
            if not self.first_gradient_s and beat.service is Service.PS and restored is not None and step > restored:
                self.first_gradient_s = beat.time_s

    def _take(self, record: LogRecord) -> None:
        evolve(self.state, record)
        past = record.seq <= self._past
        envelope = record.envelope
        if not past:
            match envelope.event:
                case PsStarted(ledgers=ledgers):
                    step = max((group.ledger.step for group in ledgers), default=0)
                    self._restored_steps[envelope.name] = step
                    self._first_steps.setdefault(envelope.name, step)
                case StopRequested() if envelope.service is Service.CLIENT:
                    self.stopped_by_client = True
                case _:
                    pass
        self._audience.record(record, self.state, past=past)
        if self.state.is_final and not past:
            self.final.set()


async def read_state(bus: Bus) -> State:
    """The whole log folded, exactly as the master does."""
    return (await recover(bus)).state
