"""A dashboard that is served to a browser, from recorded logs and from one that grows."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from tests.unit.views.recorded import job_of

from elasticdl.dashboard.app import Dashboard
from elasticdl.dashboard.server import Server
from elasticdl.dashboard.sources import FleetSource, JobRow
from elasticdl.shared.bus.ports import JobReader, KeyValueEntry
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import JobId

TOKEN = "token"


class GrowingLog:
    """See ``LogReader``: the first ``length`` of the records, until there are more."""

    def __init__(self, records: Sequence[LogRecord], length: int) -> None:
        self._records = records
        self._length = length
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def grow(self, length: int) -> None:
        """The log has this many records from now on. Another thread may call."""
        self._length = length
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    @property
    def is_whole(self) -> bool:
        """Whether the log grows no more."""
        return self._length >= len(self._records)

    async def last_seq(self) -> int:
        self._loop = asyncio.get_running_loop()
        return self._length

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        del decode
        while after < (until or len(self._records)):
            while after < (until or self._length):
                after += 1
                yield self._records[after - 1]
            self._changed.clear()
            if after >= self._length < len(self._records):
                await self._changed.wait()


class NoValues:
    """See ``ValueReader``."""

    async def read(self, name: str) -> KeyValueEntry | None:
        return None


class GrowingJob:
    """See ``JobSource`` and ``JobReader``."""

    def __init__(self, records: Sequence[LogRecord], length: int = 0) -> None:
        self.log = GrowingLog(records, length or len(records))
        self.core_snapshots = NoValues()
        self._job = job_of(records)

    @property
    def job(self) -> JobId:
        return self._job

    def is_running(self) -> bool:
        return not self.log.is_whole

    @asynccontextmanager
    async def open(self) -> AsyncIterator[JobReader]:
        yield self


class SomeJobs:
    """See ``Jobs``."""

    are_in_cluster = True

    def __init__(self, jobs: Mapping[str, GrowingJob]) -> None:
        self._jobs = jobs

    def rows(self) -> Sequence[JobRow]:
        return [
            JobRow(key=key, job=key, state="training" if job.is_running() else "succeeded")
            for key, job in self._jobs.items()
        ]

    def find(self, key: str) -> GrowingJob:
        if key not in self._jobs:
            raise UserError(f"there is no job {key}")
        return self._jobs[key]


@contextmanager
def served(jobs: Mapping[str, GrowingJob], *, only: str = "", fleet: FleetSource | None = None) -> Iterator[str]:
    """Serve a dashboard on another thread; gives its address with the token."""
    app = Dashboard(SomeJobs(jobs), TOKEN, only=only, fleet=fleet).app()
    server = Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
