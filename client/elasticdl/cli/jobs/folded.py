"""What commands need of a job's log, folded: read again from a file if a former command has kept the result."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping

from elasticdl.cli.jobs.handle import ReadableJob, read_bus
from elasticdl.cli.jobs.wall_time_child import folded_wall_time
from elasticdl.shared.bus.ports import JobReader, LogReader
from elasticdl.shared.bus.reading import present_records, submitted
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import TaskId
from elasticdl.views import core_snapshot, reading
from elasticdl.views.files.exported_log import ExportedJob, ExportedLog
from elasticdl.views.files.kept import (
    KeptResults,
    default_folder,
    task_times_of_bytes,
    task_times_to_bytes,
    wall_time_of_bytes,
    wall_time_to_bytes,
)
from elasticdl.views.reading import Reading
from elasticdl.views.records import HistoryEntry, one_line, task_history
from elasticdl.views.task_times import TIME_FIELDS, TaskTime, TaskTimes
from elasticdl.views.wall_time.one_task import Span, task_spans
from elasticdl.views.wall_time.values import WallTime


def recovered(job: ReadableJob, until: int = 0, *, all_evaluations: bool = True) -> Reading:
    """The state of a job, folded from its event log.

    Args:
        until: last record that counts; 0: all.
        all_evaluations: of many evaluations the state has all, not only the latest, although this takes longer.
    """

    async def read(bus: JobReader) -> Reading:
        if until or not isinstance(bus.log, ExportedLog):  # The broker holds a core snapshot, a file several.
            within = ExportedJob(bus.log, until) if isinstance(bus.log, ExportedLog) else bus
            return await reading.exact(within, until, all_evaluations=all_evaluations)
        kept = await _kept(job, bus.log)
        if spec := await submitted(bus.log, 0):
            state = kept.read("state", lambda data: core_snapshot.decode(data, spec))
            if state is not None:
                last = await bus.log.last_seq()
                return Reading(state=state, read_seq=last, snapshot_seq=last)
        found = await reading.exact(bus, all_evaluations=all_evaluations)
        state = found.state
        is_whole = state.spec is not None and not state.unreadable_messages.count and not state.forgotten_evaluations
        if is_whole and not found.snapshot_seq:
            kept.write("state", core_snapshot.encode(state))
        return found

    return read_bus(job, read)


def wall_time(job: ReadableJob) -> tuple[WallTime, Mapping[int, str]]:
    """Where the time of a job went, and a line for each event that proves it."""

    async def read(bus: JobReader) -> tuple[WallTime, Mapping[int, str]]:
        kept = await _kept(job, bus.log)
        if result := kept.read("why", wall_time_of_bytes):
            return result
        known = bus.log.index.known_wall_time() if isinstance(bus.log, ExportedLog) else None
        found = known or await folded_wall_time(bus.log)
        named = {seq for part in found.parts for seq, _ in part.evidence}
        texts = {record.seq: one_line(record) async for record in _numbered(bus.log, named)}
        kept.write("why", wall_time_to_bytes(found, texts))
        return found, texts

    return read_bus(job, read)


def task_times(job: ReadableJob) -> Mapping[TaskId, TaskTime]:
    """The finished training tasks of a job, and how long each took."""

    async def read(bus: JobReader) -> Mapping[TaskId, TaskTime]:
        kept = await _kept(job, bus.log)
        if (found := kept.read("times", task_times_of_bytes)) is not None:
            return found
        times = TaskTimes()
        async for record in present_records(bus.log, decode=codec.envelope_decoder(TIME_FIELDS)):
            times.take(record)
        kept.write("times", task_times_to_bytes(times.found))
        return times.found

    return read_bus(job, read)


def history(job: ReadableJob, task: TaskRef) -> list[HistoryEntry]:
    """The events of one task."""
    return list(task_history(_about(job, task), task))


def spans_of(job: ReadableJob, task: TaskRef) -> list[Span]:
    """Where the time of one task went."""
    return task_spans(_about(job, task), task)


def _about(job: ReadableJob, task: TaskRef) -> list[LogRecord]:
    """The records that may be about a task."""

    async def read(bus: JobReader) -> list[LogRecord]:
        if isinstance(bus.log, ExportedLog):
            return list(bus.log.about(task))
        return [record async for record in present_records(bus.log)]

    return read_bus(job, read)


async def _kept(job: ReadableJob, log: LogReader) -> KeptResults:
    return await KeptResults.of(default_folder(os.environ), log, job.job)


async def _numbered(log: LogReader, numbers: set[int]) -> AsyncIterator[LogRecord]:
    """The records of these numbers."""
    if isinstance(log, ExportedLog):
        for record in log.numbered(numbers):
            yield record
        return
    for seq in sorted(numbers):
        async for record in log.read(seq - 1, until=seq):
            yield record
