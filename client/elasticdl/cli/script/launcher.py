"""The processes that start and follow the jobs of a script: one waits ready, so that imports overlap the script's own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elasticdl.cli import exit_codes
from elasticdl.cli.local.processes.imports import module_command
from elasticdl.shared.errors import ElasticDLError

MODULE = "elasticdl.cli.commands.fit_job"


class JobError(ElasticDLError):
    """A job has failed, or the user has interrupted it; its launcher has said so.

    Attributes:
        exit_code: of the job.
    """

    def __init__(self, job: str, exit_code: int) -> None:
        super().__init__(f"the job {job} has ended with exit code {exit_code}")
        self.exit_code = exit_code


class Launchers:
    """Runs one job after the other.

    Args:
        flags: ``ScriptFlags`` of the command.
        root: folder of the jobs' folders.
    """

    def __init__(self, flags: Any, root: Path) -> None:
        self.flags = flags
        self.root = root
        self._standby: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._standby = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._standby is not None:
            assert self._standby.stdin is not None
            self._standby.stdin.close()
            self._standby.wait()

    def run(self, job: str, values: dict[str, Any], *, quiet: bool) -> None:
        """Run a job to its end, with its progress on this process' output.

        Args:
            values: flags of ``train`` that the script's call gives.
            quiet: print errors only.

        Raises:
            JobError: the job has failed, or the user interrupted it.
        """
        process, self._standby = self._standby or self._start(), None
        request = {"job": job, "values": values, "quiet": quiet, "folder": os.getcwd()}
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(request))
        sys.stdout.flush()
        code = _ended(process)
        if code:
            raise JobError(job, code if code > 0 else exit_codes.FAILURE)

    def _start(self) -> subprocess.Popen[str]:
        given = {
            field.name: _as_json(value)
            for field in dataclasses.fields(self.flags)
            if (value := getattr(self.flags, field.name)) != field.default
        }
        # Flags may have credentials, which all users of the machine could read in a command line.
        environment = {**os.environ, "ELASTICDL_SCRIPT": json.dumps(given), "ELASTICDL_SCRIPT_ROOT": str(self.root)}
        return subprocess.Popen(module_command(MODULE), stdin=subprocess.PIPE, text=True, env=environment)


def _ended(process: subprocess.Popen[str]) -> int:
    """Wait for a process. Ctrl-C of a terminal reaches it, too, and it says what becomes of the job."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if not _has_terminal():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)


def _has_terminal() -> bool:
    """Whether this process is in the foreground of a terminal, which sends Ctrl-C to all of its processes."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _as_json(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
