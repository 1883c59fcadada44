"""Runs the jobs of statements as the commands ``elasticdl train``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from elasticdl.cli import exit_codes
from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.interrupts import wait_for
from elasticdl.cli.jobs.accepted import JOB_FILE_VARIABLE
from elasticdl.cli.jobs.run_directory import RunDirectory, run_directories
from elasticdl.cli.kubernetes.reported import cluster_report
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.sql.jobs import KUBERNETES, EndedJob, JobOfTraining, JobRefusedError, flags_of_command


class JobFailedError(ElasticDLError):
    """The job of a statement has failed. Its command has said why."""

    def __init__(self, command: str, code: int) -> None:
        super().__init__(f"elasticdl {command} has failed (exit code {code}); see above")
        self.code = code


class RefusedError(JobFailedError, JobRefusedError):
    """The command has refused the job. It has said why."""


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
        arguments = as_flags(flags, flags_of_command(command), command)
        is_cluster = flags.get("platform") == KUBERNETES
        if not is_cluster:
            arguments += [f"--report={report}", f"--run_dir={self._root}"]
        accepted = report.with_name("job")
        accepted.touch()
        sys.stdout.flush()  # The command writes to the same place.
        with subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli", command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            env=os.environ | {JOB_FILE_VARIABLE: str(accepted)} if is_cluster else None,
            start_new_session=True,  # A Ctrl-C reaches it once, through this process.
        ) as process:
            code = wait_for(process)  # The second interrupt kills its job.
        if code == exit_codes.INTERRUPTED:
            raise KeyboardInterrupt
        if code and is_cluster and not accepted.read_text():
            raise RefusedError(command, code)
        if code:
            raise JobFailedError(command, code)
        return cluster_job(accepted.read_text(), flags) if is_cluster else ended_job(report)

    def find(self, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
        """See ``Jobs``."""
        return find_job(self._root, output, options)


def cluster_job(job: str, options: Mapping[str, Any]) -> EndedJob:
    """The id and the metrics of a job on Kubernetes.

    Raises:
        ElasticDLError: its log can't be read.
    """
    facts = cluster_report(job, options.get("namespace") or "")
    if facts is None:
        raise ElasticDLError(f"the log of {job} can't be read; elasticdl report {job} shows why")
    return EndedJob(job=str(facts["job"]), metrics=_metrics_of_model(facts))


def ended_job(report: Path) -> EndedJob:
    """The id and the metrics in a report."""
    facts = json.loads(report.read_text())
    return EndedJob(job=facts["job"], metrics=_metrics_of_model(facts))


def find_job(root: Path, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
    """See ``Jobs.find``."""
    if options.get("platform") == KUBERNETES:
        return _find_in_cluster(options)
    from elasticdl.cli.jobs.local_handle import shown_state

    for run in reversed(run_directories(root)):
        with contextlib.suppress(UserError):
            record = run.read()
            if record.output == output:
                state = shown_state(run, record)
                resume = "" if state == "succeeded" or run.is_locked() else _resume(run)
                return JobOfTraining(job=record.job, state=state, metrics=_metrics(run), resume=resume)
    return None


def _find_in_cluster(options: Mapping[str, Any]) -> JobOfTraining | None:
    facts = cluster_report(str(options["job_name"]), options.get("namespace") or "")
    if facts is None:
        return None
    job, state = str(facts["job"]), str(facts["state"])
    place = f" --namespace={options['namespace']}" if options.get("namespace") else ""
    can_be_resumed = state in ("failed", "stopped", "interrupted")
    resume = f"elasticdl resume {job}{place}" if can_be_resumed else ""
    return JobOfTraining(job=job, state=state, metrics=_metrics_of_model(facts), resume=resume)


def _resume(run: RunDirectory) -> str:
    return f"elasticdl resume {run.arguments}" if run.can_be_resumed() else ""


def _metrics(run: RunDirectory) -> dict[str, float]:
    try:
        return _metrics_of_model(json.loads(run.report.read_text()))
    except (OSError, ValueError, KeyError):
        return {}


def _metrics_of_model(report: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of the model that was exported: of the best evaluation, which need not be the last one.

    Those without a value are left out: JSON has null for one that is not finite.
    """
    metrics: Mapping[str, Any] = report["metrics"]
    if (best := report["best"]) and best["exported"]:
        rows = report["history"]["evaluations"]
        metrics = next((row["metrics"] for row in rows if row["evaluation"] == best["evaluation"]), metrics)
    return {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
