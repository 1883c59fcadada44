"""``elasticdl events``: prints the event log of a job, or a part of it, and exports it to a file."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from elasticdl.cli.commands.exporting import export_log
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.next_steps import resume_line
from elasticdl.cli.display.output import print_json
from elasticdl.cli.jobs.handle import (
    JobEndedError,
    ReadableJob,
    read_bus,
    read_records,
    unless_ended,
    until_ended,
    until_first_ends,
)
from elasticdl.master.core import State
from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.words import count, size, time_of_day
from elasticdl.views.files.anonymous import Anonymizer
from elasticdl.views.files.exported_log import Header
from elasticdl.views.points import Point, condition, is_type
from elasticdl.views.reading import Reading, following
from elasticdl.views.records import one_line, record_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events to print.

    Attributes:
        since, until: the first and the last one, as points; empty: those of the log.
        types: their types, one of them; empty: any.
        where: conditions, all of them.
    """

    since: str = ""
    until: str = ""
    types: Sequence[str] = ()
    where: Sequence[str] = ()

    def wanted(self) -> Callable[[Envelope], bool]:
        """Whether an event is of the types and meets the conditions. Raises ``UserError``: a type is unknown."""
        types, conditions = [is_type(name) for name in self.types], [condition(text) for text in self.where]
        return lambda envelope: (
            (not types or any(matches(envelope.event) for matches in types))
            and all(meets(envelope) for meets in conditions)
        )


def events(job: ReadableJob, query: EventQuery, *, follow: bool, as_json: bool = False) -> None:
    """Print the events, one line each; as JSON, one object per line."""
    console = plain_console()
    wanted = query.wanted()
    since = Point.of("since", query.since) if query.since else None
    until = Point.of("until", query.until) if query.until else None
    if follow and until:
        raise UserError("--follow prints new events, so it takes no --until", usage=True)

    def show(record: LogRecord) -> None:
        if not wanted(record.envelope):
            return
        if as_json:
            print_json(console, record_facts(record), one_line=True)
        else:
            console.print(one_line(record))

    if follow:
        first = _found(job, since, read_records(job), is_end=False) if since else 0
        interrupted = asyncio.run(_follow(job, lambda record: show(record) if record.seq >= first else None))
        if interrupted and not as_json:
            console.print(interrupted)
        return
    for record in chosen_records(job, query):
        show(record)


def chosen_records(job: ReadableJob, query: EventQuery) -> Sequence[LogRecord]:
    """The records between the points of a query."""
    since = Point.of("since", query.since) if query.since else None
    until = Point.of("until", query.until) if query.until else None
    records = read_records(job, until.seq if until and not (since and since.event) else 0)
    first = _found(job, since, records, is_end=False) if since else 0
    if since and first > len(records):
        if until and until.seq and since.seq > until.seq:
            raise UserError(f"--since={since.text} is after --until={until.text}", usage=True)
        end = f"{time_of_day(records[-1].envelope.time_s)}, #{len(records)}" if records else "its beginning"
        raise UserError(f"--since={since.text}: the event log of {job.job} ends at {end}")
    last = _found(job, until, records, is_end=True) if until else len(records)
    return [record for record in records if first <= record.seq <= last]


def _found(job: ReadableJob, point: Point, records: Sequence[LogRecord], *, is_end: bool) -> int:
    seq = point.find(records, is_end=is_end)
    if not seq and point.event:
        raise UserError(f"the event log of {job.job} has no event {point.event}")
    return seq or (0 if is_end else len(records) + 1)


def export_events(job: ReadableJob, path: Path, *, anonymize: bool) -> None:
    """Write the event log to a file that all commands take in place of the job."""
    header = write_export(job, path, anonymize=anonymize)
    written = f"{count(header.records, 'event')} ({size(path.stat().st_size)})"
    plain_console().print(f"Wrote {written} of {job.job} to {path}.")


def write_export(job: ReadableJob, path: Path, *, anonymize: bool) -> Header:
    """Write the file, and print nothing; returns what the file says about itself."""
    condition = job.condition()
    header = Header(
        job=Anonymizer(job.job).job if anonymize else job.job,
        records=0,
        state=condition.state,
        running=condition.is_running or condition.was_running,
        message="" if anonymize else condition.message,
        program=version("elasticdl"),
        exported_s=time.time(),
        anonymized=anonymize,
    )
    return read_bus(job, lambda bus: export_log(bus, path, header, job.job if anonymize else None))


async def _follow(job: ReadableJob, show: Callable[[LogRecord], None]) -> str:
    """Show records until the job has ended; returns what interrupted it, or nothing."""
    follower = _Follower(show)
    was_running = job.condition().is_running
    if was_running:
        with contextlib.suppress(JobEndedError):
            await unless_ended(job, partial(_show_running, job, follower))
    async with job.open() as bus:
        await follower.show_to(await bus.log.last_seq(), bus.log)
    if was_running and not follower.state.is_final:
        return f"{job.job} {job.condition().end}. To resume: {resume_line(job.arguments)}"
    return ""


async def _show_running(job: ReadableJob, follower: _Follower) -> None:
    """Show the records of a job until nothing runs it any more. The last ones may be missing: its server ends, too."""
    async with job.open() as bus:
        await until_first_ends(follower.show_to(sys.maxsize, bus.log), until_ended(job))


class _Follower:
    """Shows each record once, whichever server it is read from."""

    def __init__(self, show: Callable[[LogRecord], None]) -> None:
        self.state = State()
        self._show, self._seq = show, 0

    async def show_to(self, last: int, log: LogReader) -> None:
        """Show the further records up to a sequence number."""
        if self._seq >= last:
            return
        async for record in following(log, Reading(state=self.state, read_seq=self._seq)):
            self._seq = record.seq
            self._show(record)
            if record.seq >= last:
                return
