"""Processes that wait to take the place of a worker; see ``elasticdl.worker.spare``."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticdl.cli.local.processes.fork_server import SPARE, ForkServers
from elasticdl.cli.local.processes.imports import module_command
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import encode_spec
from elasticdl.shared.process import model_check, spares
from elasticdl.shared.process.fork_server import WaitingProcess

SPARES_LOG = "spares.log"
"""File in the folder of the logs."""


class Spares:
    """Spare workers of a job on this machine.

    Args:
        folder: for their pipes; it is created, and removed at the end.
        environment: number of a spare -> its environment.
        logs: folder for the output of a spare until it becomes a worker.
    """

    def __init__(
        self,
        forks: ForkServers,
        spec: JobSpec,
        *,
        folder: Path,
        environment: Callable[[int], Mapping[str, str]],
        logs: Path,
    ) -> None:
        self._forks, self._spec, self._folder = forks, spec, folder
        self._environment, self._logs = environment, logs
        self._waiting: dict[int, WaitingProcess] = {}
        self._started = 0
        self._has_failed = False
        self._ready: set[int] = set()

    def fill(self) -> bool:
        """Start spares until there are enough; not after one has ended by itself, for the next one would, too.

        Returns:
            Whether one has ended by itself since the last call.
        """
        has_failed = False
        for number, process in list(self._waiting.items()):
            ended, _ = os.waitpid(process.pid, os.WNOHANG)
            if ended:
                del self._waiting[number]
                has_failed = self._has_failed = True
        while len(self._waiting) < self._spec.spare_workers and not self._has_failed:
            self._start()
        return has_failed

    def newly_ready(self) -> int:
        """How many spares have become ready since the last call."""
        ready = {number for number in self._waiting if spares.ready_file(self._folder, number).exists()}
        new, self._ready = ready - self._ready, self._ready | ready
        return len(new)

    def take(self) -> WaitingProcess | None:
        """A spare that has built the model; it is no spare any more."""
        for number, process in self._waiting.items():
            if spares.ready_file(self._folder, number).exists():
                del self._waiting[number]
                return process
        return None

    def stop(self) -> None:
        """Kill all spares."""
        while self._waiting:
            with contextlib.suppress(ChildProcessError):
                self._waiting.popitem()[1].kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        number, self._started = self._started, self._started + 1
        self._folder.mkdir(exist_ok=True)
        (self._folder / model_check.SPEC_FILE).write_bytes(encode_spec(self._spec))
        pipe = model_check.pipe_of(self._folder, number)
        os.mkfifo(pipe)
        environment = {
            **self._environment(number),
            model_check.FOLDER_VARIABLE: str(self._folder),
            model_check.NUMBER_VARIABLE: str(number),
        }
        pid = self._forks.start(module_command(SPARE), environment=environment, log=self._logs / SPARES_LOG)
        self._waiting[number] = WaitingProcess(pid=pid, pipe=pipe)
