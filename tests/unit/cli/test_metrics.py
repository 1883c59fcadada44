"""The exporter of a running job survives that its log is away, and reads the last events of a job that has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.unit.views.recorded import Recorded, job_of, recorded

from elasticdl.cli.commands.looking import metrics
from elasticdl.cli.jobs.handle import Condition
from elasticdl.shared.bus.ports import JobReader, KeyValueEntry, LogReader
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import LogRecord
from elasticdl.views.outputs.prometheus import JobMetrics

RECORDS = recorded("plain")


class Breaking(Recorded):
    """A log whose connection is lost behind its last record."""

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        async for record in super().read(after, decode, until):
            yield record
        raise TransientError("the connection is lost")


class NoSnapshots:
    """See ``ValueReader``."""

    async def read(self, name: str) -> KeyValueEntry | None:
        del name
        return None


class Reader:
    """See ``JobReader``."""

    def __init__(self, log: LogReader) -> None:
        self.log = log
        self.core_snapshots = NoSnapshots()


class Job:
    """See ``ReadableJob``: each time that it is opened it has the next log, and it runs until it has the last one."""

    job = job_of(RECORDS)
    arguments = str(job)

    def __init__(self, logs: Sequence[LogReader]) -> None:
        self._logs = list(logs)

    def condition(self) -> Condition:
        return Condition(is_running=bool(self._logs), state="training")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[JobReader]:
        if not self._logs:
            raise TransientError("the log is away")
        yield Reader(self._logs.pop(0))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "POLL_S", 0.0)


async def test_a_lost_connection_is_made_again_and_each_event_counts_once() -> None:
    exporter = metrics.Exporter(Job([Breaking(RECORDS[:30]), Breaking(RECORDS[:50]), Recorded(RECORDS)]))
    await exporter.follow()
    text = exporter.text()
    assert f'elasticdl_job_events_total{{training_job="{Job.job}"}} {len(RECORDS)}\n' in text
    assert f'elasticdl_job_state{{training_job="{Job.job}",state="succeeded"}} 1\n' in text


async def test_a_log_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "RETRY_S_MAX", 0.0)
    with pytest.raises(TransientError, match="the log is away"):
        await metrics.Exporter(Job([])).follow()


class Growing(Recorded):
    """A log that gets its last records while it is followed."""

    async def last_seq(self) -> int:
        return 30


async def test_an_error_while_the_job_is_followed_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    take = JobMetrics.take

    def fail_later(counted: JobMetrics, record: LogRecord) -> None:
        if record.seq > 30:
            raise ArithmeticError
        take(counted, record)

    monkeypatch.setattr(JobMetrics, "take", fail_later)
    with pytest.raises(ArithmeticError):
        await metrics.Exporter(Job([Growing(RECORDS), Recorded(RECORDS)])).follow()
