"""The launcher publishes the first events of a run before a master reads the log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
from tests.unit.master.driver import job_spec

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.broker import ExternalBroker
from elasticdl.cli.local.local_job import LocalJob, Runtime
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.log import MemoryEventLog
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import Envelope, Event, JobResumed, JobSubmitted, LogRecord
from elasticdl.shared.names import JobId, PodName
from elasticdl.shared.process.clock import JobClock, SystemClock
from elasticdl.shared.process.exit_codes import EXIT_REFUSED


class CountingLog(MemoryEventLog):
    """A log that records how many child processes existed at each append."""

    def __init__(self, log: MemoryEventLog) -> None:
        self.__dict__.update(log.__dict__)
        self.children: dict[type[Event], int] = {}

    async def append(self, envelope: Envelope) -> int:
        self._count(envelope)
        return await super().append(envelope)

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        self._count(envelope)
        return await super().append_next(envelope, after=after)

    def _count(self, envelope: Envelope) -> None:
        self.children[type(envelope.event)] = len(psutil.Process().children())


class NullObserver:
    """Ignores everything."""

    def print_line(self, line: str) -> None: ...

    def on_accepted(self) -> None: ...

    def on_terminal_closed(self) -> None: ...

    def on_start(self, state: State) -> None: ...

    def on_record(self, record: LogRecord, state: State) -> None: ...

    def on_tick(
        self, state: State, heartbeats: Mapping[PodName, Heartbeat], pids: Mapping[str, int], goodput: float | None
    ) -> None: ...


async def test_a_resume_is_on_the_log_before_there_is_a_master(tmp_path: Path) -> None:
    """A master that reads the log of a stopped job before that takes the job for over, and ends."""
    run = RunDirectory(tmp_path, JobId("job"))
    run.create()
    bus = MemoryBroker().connect()
    counting = bus.log = CountingLog(bus.log)

    async def connect(_url: str) -> Bus:
        return bus

    runtime = Runtime(
        broker=ExternalBroker("nats://nowhere"),
        connect=connect,
        environment=lambda _url, _pod, _service: {},
        spawner=Spawner(),
        command=lambda _service: [sys.executable, "-c", f"raise SystemExit({EXIT_REFUSED})"],
    )
    job = LocalJob(run, runtime, NullObserver(), started_s=0.0, clock=JobClock(SystemClock()))
    before = len(psutil.Process().children())
    await job.run(JobSubmitted(spec=job_spec()), JobResumed(reason="resumed"))
    opened = {kind: counting.children[kind] for kind in (JobSubmitted, JobResumed)}
    assert opened == {JobSubmitted: before, JobResumed: before}
