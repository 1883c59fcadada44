"""A job whose event log was exported to a file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from elasticdl.cli.jobs.handle import Condition, ReadableJob
from elasticdl.shared.bus.ports import JobReader
from elasticdl.views.files.exported_log import ExportedJob, ExportedLog


class ExportedJobHandle:
    """See ``ReadableJob``. Raises as ``ExportedLog``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = ExportedLog(path)
        self.job = self.arguments = self._log.header.job

    def condition(self) -> Condition:
        """See ``ReadableJob``: what was known when the file was written."""
        header = self._log.header
        return Condition(is_running=False, state=header.state, message=header.message, was_running=header.running)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[JobReader]:
        """See ``ReadableJob``."""
        yield ExportedJob(self._log)


def inspected(job: ReadableJob) -> str:
    """The arguments of commands that only read a job: its file, if it was opened from one."""
    return str(job.path) if isinstance(job, ExportedJobHandle) else job.arguments
