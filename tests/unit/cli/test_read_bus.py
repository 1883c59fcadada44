"""Reading a job gives its result without formatting it, and does not wait for a server that has ended with the job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from elasticdl.cli.jobs.handle import Condition, JobEndedError, read_bus, unless_ended
from elasticdl.shared.bus.ports import JobReader
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.names import JobId


class _Job:
    """See ``ReadableJob``."""

    job, arguments = JobId("job-1"), "job-1"

    def __init__(self, *, is_running: bool = False) -> None:
        self.is_running = is_running

    def condition(self) -> Condition:
        state = "training" if self.is_running else "succeeded"
        return Condition(is_running=self.is_running, state=state, owns_server=True)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[JobReader]:
        yield None  # type: ignore[misc]


class _Result:
    texts = 0

    def __repr__(self) -> str:
        self.texts += 1
        return "a state of megabytes"


def test_a_large_result_is_not_formatted() -> None:
    found = _Result()

    async def read(_: JobReader) -> _Result:
        return found

    assert read_bus(_Job(), read) is found
    assert found.texts == 0


def test_a_job_that_ends_while_it_is_read_is_read_from_its_files() -> None:
    job = _Job(is_running=True)

    async def read(_: JobReader) -> str:
        if job.is_running:
            job.is_running = False
            await asyncio.Event().wait()  # The server has gone; a request is repeated for minutes.
        return "from the files"

    assert read_bus(job, read) == "from the files"


def test_a_server_that_ends_before_the_launcher_is_no_error() -> None:
    job = _Job(is_running=True)

    async def read(_: JobReader) -> str:
        if job.is_running:
            asyncio.get_running_loop().call_later(0.1, setattr, job, "is_running", False)
            raise TransientError("no NATS server answers")
        return "from the files"

    assert read_bus(job, read) == "from the files"


def test_an_error_while_a_running_job_is_read_is_raised_at_once() -> None:
    async def read(_: JobReader) -> str:
        raise UserError("no such task")

    with pytest.raises(UserError, match="no such task"):
        read_bus(_Job(is_running=True), read)


def test_what_a_running_job_is_asked_for_fails_once_it_has_ended() -> None:
    job = _Job(is_running=True)

    async def never() -> None:
        job.is_running = False
        await asyncio.Event().wait()

    with pytest.raises(JobEndedError, match="job-1 has succeeded"):
        asyncio.run(unless_ended(job, never))


class _UnknownJob(_Job):
    """Only the first look at it succeeds."""

    def __init__(self) -> None:
        super().__init__(is_running=True)
        self.looks = 0
        self.failed = asyncio.Event()

    def condition(self) -> Condition:
        self.looks += 1
        if self.looks > 1:
            self.failed.set()
            raise TransientError("the API server does not answer")
        return super().condition()


def test_what_can_be_read_is_read_although_the_condition_of_the_job_is_unknown() -> None:
    job = _UnknownJob()

    async def read(_: JobReader) -> str:
        await job.failed.wait()
        return "the log"

    assert read_bus(job, read) == "the log"
