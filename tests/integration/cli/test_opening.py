"""The launcher publishes the first events of a run before a master reads the log."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
from tests.unit.master.driver import job_spec

from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.broker import ExternalBroker
from elasticdl.cli.local.local_job import LocalJob, Runtime
from elasticdl.cli.local.observer import JobObserver
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.log import MemoryEventLog
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.messages.events import Envelope, Event, JobResumed, JobSubmitted
from elasticdl.shared.names import JobId
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
    clock = JobClock(SystemClock())
    observer = JobObserver(run, JobRecord(job=run.job, created_s=0.0, state="starting"), clock)
    job = LocalJob(run, runtime, observer, started_s=0.0, clock=clock)
    before = len(psutil.Process().children())
    await job.run(JobSubmitted(spec=job_spec()), JobResumed(reason="resumed"))
    opened = {kind: counting.children[kind] for kind in (JobSubmitted, JobResumed)}
    assert opened == {JobSubmitted: before, JobResumed: before}
