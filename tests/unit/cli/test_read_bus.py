"""Reading a job gives its result without formatting it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from elasticdl.cli.jobs.handle import Condition, read_bus
from elasticdl.shared.bus.ports import JobReader
from elasticdl.shared.names import JobId


class _Job:
    """See ``ReadableJob``."""

    job, arguments = JobId("job-1"), "job-1"

    def condition(self) -> Condition:
        return Condition(is_running=False, state="succeeded")

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
