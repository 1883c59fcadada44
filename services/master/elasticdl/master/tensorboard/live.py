"""Writes the TensorBoard event files of ``--tensorboard_log_dir`` while the job runs and at its end.

It reads the log by itself and appends nothing to it: no decision depends on these files, and no job fails because they
can't be written.
"""

from __future__ import annotations

import asyncio
from functools import partial

from elasticdl.master.tensorboard import event_files
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.bus.retries import until_done
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.storage import display, join, open_store
from elasticdl.views.curves import FoldedCurves, Point

WRITE_EVERY_S = 10.0
"""Seconds between two writes: object storage replaces whole files, and TensorBoard reads them every 5 s at most."""
END_S_MAX = 60.0
"""Seconds for which the end of a job waits for its files."""
_RECORDS_AT_ONCE_MAX = 256
"""Records that are folded before other tasks of the loop run."""

_log = get_logger()


def folder_of(spec: JobSpec) -> str:
    """URI of the folder of a job's runs; several jobs may have the same log directory."""
    return join(spec.tensorboard_log_dir, spec.job)


async def write_event_files(log: EventLog) -> None:
    """Bring the event files of a job that has ended up to date with its log, if the job has such files."""
    files = LiveEventFiles(log)
    files.begin()
    await files.finish()
    files.cancel()


class LiveEventFiles:
    """The event files of one job, written by its master.

    The files are a function of the log. So a successor of the master, which reads the log from its beginning, continues
    the files of its predecessor and writes no point twice.
    """

    def __init__(self, log: EventLog, write_every_s: float = WRITE_EVERY_S) -> None:
        self._log = log
        self._write_every_s = write_every_s
        self._curves = FoldedCurves()
        self._points: list[Point] = []
        self._read_seq = 0
        self._has_read = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to write, if the job has such files; returns at once."""
        self._task = asyncio.create_task(self._run(), name="TensorBoard files")

    async def finish(self) -> None:
        """Write the points of the whole log, which has its last records; without effect if the job has no such files.

        It ends after ``END_S_MAX`` at the latest.
        """
        if self._task is None:
            return
        try:
            async with asyncio.timeout(END_S_MAX):
                spec = await read_spec(self._log)
                if spec.tensorboard_log_dir and not self._task.done():
                    await self._until_read(await self._log.last_seq())
                    await until_done("write TensorBoard files", partial(self._write, spec))
        except (ElasticDLError, TimeoutError) as error:
            _log.warning("the TensorBoard files lack the end of the job", reason=str(error))

    def cancel(self) -> None:
        """End without writing."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            spec = await read_spec(self._log)
            if spec.tensorboard_log_dir:
                last_seq = await self._log.last_seq()
                await asyncio.gather(self._read(), self._write_often(spec, last_seq))
        except ElasticDLError as error:
            _log.warning("TensorBoard files are not written any more", reason=str(error))

    async def _read(self) -> None:
        async for record in self._log.read(0):
            self._points.extend(self._curves.on_record(record))
            self._read_seq = record.seq
            if record.seq % _RECORDS_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
            async with self._has_read:
                self._has_read.notify_all()

    async def _until_read(self, seq: int) -> None:
        async with self._has_read:
            await self._has_read.wait_for(lambda: self._read_seq >= seq)

    async def _write_often(self, spec: JobSpec, last_seq: int) -> None:
        """Write at intervals, once the records up to ``last_seq`` are read.

        The files may have the points of all these records already, and fewer points would replace them.
        """
        await self._until_read(last_seq)
        while True:
            try:
                await self._write(spec)
            except ElasticDLError as error:
                _log.warning("TensorBoard files not written yet", reason=str(error))
            await asyncio.sleep(self._write_every_s)

    async def _write(self, spec: JobSpec) -> None:
        folder = folder_of(spec)
        async with self._writing:  # A write that began earlier must not end later: it has fewer points.
            points = tuple(self._points)
            await asyncio.to_thread(event_files.write, open_store(folder), folder, spec.job, points, spec.created_s)
        _log.debug("TensorBoard files written", folder=display(folder), points=len(points))
