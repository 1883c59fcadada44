"""Runs the jobs of statements as the commands ``elasticdl train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from elasticdl.cli import exit_codes
from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.interrupts import wait_for
from elasticdl.cli.jobs.run_directory import RunDirectory, run_directories
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.options import flags_of
from elasticdl.sql.jobs import COMMANDS, EndedJob, JobOfTraining


class JobFailedError(ElasticDLError):
    """The job of a statement has failed. Its command has said why."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(f"elasticdl {command} has failed (exit code {code}); see above")
        self.code = code


class CommandJobs:
    """See ``elasticdl.sql.jobs.Jobs``.

    Args:
        root: the folder of run directories.
        output: takes what the commands print; None: standard output.
    """

    def __init__(self, root: Path, output: IO[str] | None = None) -> None:
        self._root, self._output = root, output

    def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
        """See ``Jobs``."""
        arguments = [*as_flags(flags, flags_of(COMMANDS[command]), command), f"--report={report}"]
        arguments.append(f"--run_dir={self._root}")
        sys.stdout.flush()  # The command writes to the same place.
        with subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli", command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            start_new_session=True,  # A Ctrl-C reaches it once, through this process.
        ) as process:
            code = wait_for(process)  # The second interrupt kills its job.
        if code == exit_codes.INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            raise JobFailedError(command, code)
        return ended_job(report)

    def find(self, output: Path) -> JobOfTraining | None:
        """See ``Jobs``."""
        return find_job(self._root, output)


def ended_job(report: Path) -> EndedJob:
    """The id and the metrics in a report."""
    facts = json.loads(report.read_text())
    return EndedJob(job=facts["job"], metrics=_numbers(facts["metrics"]))


def find_job(root: Path, output: Path) -> JobOfTraining | None:
    """See ``Jobs.find``."""
    from elasticdl.cli.jobs.local_handle import shown_state

    for run in reversed(run_directories(root)):
        with contextlib.suppress(UserError):
            record = run.read()
            if record.output == str(output):
                state = shown_state(run, record)
                resume = "" if state == "succeeded" or run.is_locked() else _resume(run)
                return JobOfTraining(job=record.job, state=state, metrics=_metrics(run), resume=resume)
    return None


def _resume(run: RunDirectory) -> str:
    return f"elasticdl resume {run.arguments}" if run.can_be_resumed() else ""


def _metrics(run: RunDirectory) -> dict[str, float]:
    try:
        return _numbers(json.loads(run.report.read_text())["metrics"])
    except (OSError, ValueError, KeyError):
        return {}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics that have a value: JSON has null for one that is not finite."""
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
