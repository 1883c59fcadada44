"""The handle of a job on this machine: its run directory, and its launcher."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil

from elasticdl.cli.jobs.handle import READ_INTERVAL_S, Condition, JobNotFoundError, NewLogLines, Suspension
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import INTERRUPTED, JobRecord, RunDirectory
from elasticdl.cli.local.processes.logs import PRINTED, NewLines, tail_and_end
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.pods.log_lines import is_noise, readable

FINAL = (JobState.SUCCEEDED.value, JobState.FAILED.value, JobState.STOPPED.value)
LOGS = ("*.log", *PRINTED)


class LocalJobHandle:
    """See ``JobHandle``."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.job = run.job
        self.arguments = run.arguments
        self.logs = LocalLogs(run)

    def condition(self) -> Condition:
        """See ``JobHandle``."""
        if not self._run.path.exists():
            raise JobNotFoundError(f"job {self.job} was deleted")
        record = self._run.read()
        return Condition(
            is_running=self._run.is_launched(record),
            state=shown_state(self._run, record),
            message=record.message,
            next_step=record.next_step,
            suspension=suspension(self._run),
            kill_command=f"kill -9 {record.launcher_pid}",
            storage=record.storage,
            pids=record.pids,
            owns_server=record.own_nats,
        )

    def open(self) -> AbstractAsyncContextManager[Bus]:
        """See ``JobHandle``."""
        return open_bus(self._run, read_interval_s=READ_INTERVAL_S)

    def terminate(self) -> None:
        """See ``JobHandle``. The launcher stops the job when it gets SIGTERM."""
        launcher = self._run.read().launcher_pid
        if self._run.holder() != launcher:
            raise self._run.in_use()
        os.kill(launcher, signal.SIGTERM)


class LocalLogs:
    """See ``PodLogs``."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def pods(self) -> Sequence[str]:
        """See ``PodLogs``."""
        return sorted({file.stem for file in self._files()})

    def read(self, pods: Sequence[str], lines: int) -> tuple[Sequence[tuple[str, str]], NewLogLines]:
        """See ``PodLogs``."""

        def wanted(pod: str) -> bool:
            return not pods or pod in pods

        found, ends = [], {file: file.stat().st_size for file in self._files() if not wanted(file.stem)}
        for file in filter(lambda file: wanted(file.stem), self._files()):
            last, ends[file] = tail_and_end(file, lines, complete=True)
            found += [(file.stem, line) for line in last]
        new = NewLines(self._run.logs, LOGS, ends)

        def take(*, last: bool = False) -> Sequence[tuple[str, str]]:
            lines = _all(new) if last else new.take()
            return [(pod, readable(line)) for pod, line in lines if wanted(pod) and not is_noise(line)]

        return found, take

    def printed(self) -> NewLogLines:
        """See ``PodLogs``."""
        new = NewLines(self._run.logs)
        return lambda *, last=False: _all(new) if last else new.take()

    def _files(self) -> list[Path]:
        return sorted(file for pattern in LOGS for file in self._run.logs.glob(pattern))


def _all(new: NewLines) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while lines := new.take(partial=True):
        found += lines
    return found


def shown_state(run: RunDirectory, record: JobRecord) -> str:
    """The state of a job; ``interrupted`` if its launcher died before the job ended."""
    if record.state not in FINAL and not run.is_launched(record):
        return INTERRUPTED
    return record.state


def suspension(run: RunDirectory) -> Suspension | None:
    """Whether Ctrl-Z or SIGSTOP suspends the launcher. The processes of the job continue meanwhile."""
    pid = run.holder()
    with contextlib.suppress(psutil.Error):
        if pid and pid == run.read().launcher_pid and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            return Suspension(process=f"launcher (process {pid})", remedy=f"kill -CONT {pid}")
    return None
