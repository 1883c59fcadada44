"""What a launcher puts on the log before a master reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
from tests.unit.master.driver import job_spec

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.broker import ForeignBroker
from elasticdl.cli.local.local_job import LocalJob
from elasticdl.cli.local.spawner import Spawner
from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.log import MemoryEventLog
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages.events import Envelope, Event, JobResumed, JobSubmitted, LogRecord
from elasticdl.shared.names import JobId, PodName
from elasticdl.shared.process.exit_codes import EXIT_REFUSED


class Witness(MemoryEventLog):
    """A log that notes how many children its writer had whenever it wrote."""

    def __init__(self, log: MemoryEventLog) -> None:
        self.__dict__.update(log.__dict__)
        self.children: dict[type[Event], int] = {}

    async def append(self, envelope: Envelope) -> int:
        self.children[type(envelope.event)] = len(psutil.Process().children())
        return await super().append(envelope)


class Nobody:
    """An audience that does not listen."""

    def say(self, line: str) -> None: ...

    def begin(self, state: State) -> None: ...

    def record(self, record: LogRecord, state: State) -> None: ...

    def tick(
        self, state: State, beats: Mapping[PodName, Beat], pids: Mapping[str, int], goodput: float | None
    ) -> None: ...


async def test_a_resume_is_on_the_log_before_there_is_a_master(tmp_path: Path) -> None:
    """A master that reads the log of a stopped job before that takes the job for over, and ends."""
    run = RunDirectory(tmp_path, JobId("job"))
    run.create()
    bus = MemoryBroker().connect()
    witness = bus.log = Witness(bus.log)

    async def connect(_url: str) -> Bus:
        return bus

    job = LocalJob(
        run=run,
        broker=ForeignBroker("nats://nowhere"),
        connect=connect,
        environment=lambda _url, _pod, _service: {},
        audience=Nobody(),
        spawner=Spawner(),
        command=lambda _service: [sys.executable, "-c", f"raise SystemExit({EXIT_REFUSED})"],
    )
    before = len(psutil.Process().children())
    await job.run(JobSubmitted(spec=job_spec()), JobResumed(reason="resumed"))
    assert witness.children == {JobSubmitted: before, JobResumed: before}
