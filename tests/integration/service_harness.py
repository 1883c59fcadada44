"""A real broker with a job on it and real processes of services. The test plays all other processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.deadline import DEADLINE_S

from elasticdl.shared.bus import BusSettings
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.nats_bus import NatsBus, connect
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Envelope, Event, JobSubmitted, LogRecord
from elasticdl.shared.names import Incarnation, PodInstance, PodName, Service, new_incarnation
from elasticdl.shared.process.settings import MasterSettings, ProcessSettings, PsSettings, to_environment

TOKEN = "secret"


class ServiceHarness:
    """A broker with a job on it, and processes of services.

    Args:
        folder: for the broker's files and the logs of the processes.
        spec: the job.
        settings: of the bus.
    """

    def __init__(self, folder: Path, spec: JobSpec, settings: BusSettings | None = None) -> None:
        self.spec = spec
        self._folder = folder
        self._settings = settings
        self._server = NatsServer(folder / "nats")
        self.url = self._server.start()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers: dict[str, int] = {}
        self._incarnations: dict[str, Incarnation] = {}
        self.loop = LoopThread()
        self.bus = self.connect()
        self.publish(JobSubmitted(spec=self.spec), Service.LAUNCHER, "launcher")

    def connect(self) -> NatsBus:
        """Another client."""
        return self.loop.call(connect(self.url, self.spec.job, self._settings))

    def publish(self, event: Event, service: Service, name: str) -> None:
        """Append an event in the name of a process that the test plays."""
        incarnation = self._incarnations.setdefault(name, new_incarnation())
        self._numbers[name] = self._numbers.get(name, 0) + 1
        envelope = Envelope(
            service=service,
            name=PodName(name),
            incarnation=incarnation,
            run=self._incarnations["launcher"],
            instance=PodInstance(name),
            number=self._numbers[name],
            time_s=time.time(),
            event=event,
        )
        self.loop.call(self.bus.log.append(envelope))

    def start(self, module: str, settings: ProcessSettings, log: str) -> subprocess.Popen[bytes]:
        """Start a service. Its standard error goes to the file ``log``."""
        with (self._folder / log).open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", module], env=os.environ | to_environment(settings), stderr=file
            )
        self._processes.append(process)
        return process

    def master(self, log: str, *, return_deliveries: bool = True) -> subprocess.Popen[bytes]:
        """Start a master."""
        settings = MasterSettings(
            nats_url=self.url, job=self.spec.job, pod=PodName("master"), return_deliveries=return_deliveries
        )
        return self.start("elasticdl.master.main", settings, log)

    def ps(self, log: str) -> subprocess.Popen[bytes]:
        """Start a ps."""
        settings = PsSettings(
            nats_url=self.url, job=self.spec.job, pod=PodName("ps-0"), token=TOKEN, heartbeat_interval_s=0.05
        )
        return self.start("elasticdl.ps.main", settings, log)

    def text(self, log: str) -> str:
        """What a process has written to its log."""
        return (self._folder / log).read_text()

    def await_record(self, is_it: Callable[[LogRecord], bool]) -> LogRecord:
        """Wait for a record of the log."""

        async def read() -> LogRecord:
            async for record in self.bus.log.read(0):
                if is_it(record):
                    return record
            raise AssertionError("the log ended")

        return self.loop.call(asyncio.wait_for(read(), DEADLINE_S))

    def await_event(self, kind: type[Event], count: int = 1) -> Envelope:
        """Wait for ``count`` events of a kind; returns the last of them."""
        seen: set[int] = set()

        def enough(record: LogRecord) -> bool:
            seen.update([record.seq] if isinstance(record.envelope.event, kind) else [])
            return len(seen) == count

        return self.await_record(enough).envelope

    def close(self) -> None:
        """Kill all processes and stop the broker."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.loop.call(self.bus.close())
        self.loop.stop()
        self._server.stop()
