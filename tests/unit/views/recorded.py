"""The recorded logs of real jobs, for tests of views."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tests.histories.logs import FOLDER, SUFFIX, read_log

from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import JobSubmitted, LogRecord
from elasticdl.shared.names import JobId
from elasticdl.views.files.exported_log import Header

LOGS = sorted(FOLDER.glob(f"*{SUFFIX}"))


def recorded(name: str) -> list[LogRecord]:
    """The records of one log."""
    return list(read_log(FOLDER / f"{name}{SUFFIX}"))


def job_of(records: Sequence[LogRecord]) -> JobId:
    """The job of a log."""
    event = records[0].envelope.event
    assert isinstance(event, JobSubmitted)
    return event.spec.job


def header_of(records: Sequence[LogRecord], *, state: str = "succeeded", running: bool = False) -> Header:
    """The header of a file with these records."""
    return Header(job=job_of(records), records=0, state=state, running=running)


class Recorded:
    """See ``LogReader``: records as a log."""

    def __init__(self, records: Sequence[LogRecord]) -> None:
        self._records = records

    async def last_seq(self) -> int:
        return len(self._records)

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        for record in self._records[after : until or None]:
            yield LogRecord(seq=record.seq, envelope=decode(codec.encode_envelope(record.envelope)))
