"""``elasticdl resume``: runs a job again from its latest snapshots."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

from elasticdl.cli.background import Accept
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.former_run import former_run
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.jobs.resumption import NextRun, plan_next_run
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import RunOptions, run_job
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.preflight import check_apart, check_report, check_writable, data_paths
from elasticdl.cli.submission.source_check import check_data, check_model_files
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.storage import display, join, open_store, to_uri


def resume(
    job: str,
    root: Path,
    changes: ResumeChanges,
    report: Path | None = None,
    *,
    debug: bool = False,
    accept: Accept | None = None,
) -> int:
    """Run the command.

    Args:
        debug: after a failure, show the log of the process that caused it.

    Raises:
        UserError: the job is running, has nothing left to train, or its model file, data or working directory changed.
    """
    started_s = SystemClock().now()
    check_extras()
    given_report, given_output = report, changes.output
    report = report.expanduser().absolute() if report else None
    if report:
        check_report(report)
    output = to_uri(given_output) if given_output else ""
    changes = replace(changes, output=output)
    run = run_directory.find(root, job)
    record = run.read()
    run_directory.enter(record)
    if output:
        check_apart(f"--output={given_output}", join(output, "file"), data_paths(record))
    if report:
        check_apart(f"--report={given_report}", to_uri(report), data_paths(record))
    check_model_files(run, record)
    with run.lock():
        past = asyncio.run(_plan(run, record, changes))
        if past.spec.output:
            check_writable(f"the output {display(past.spec.output)}", past.spec.output)
        run.create()
        console = JobConsole()
        check_data(past.spec, console.print_line)
        record = replace(record, launcher_pid=os.getpid(), state=JobState.STARTING.value, message="", next_step="")
        if changes.epochs or output:
            record = replace(record, epochs=changes.epochs or record.epochs, output=display(past.spec.output))
        run.write(record)
        console.print_line(f"{past.start_line} Logs: {run.logs}")
        options = RunOptions(started_s=started_s, report=report, debug=debug, accept=accept)
        return run_job(run, record, past.spec, past.opening, options)


async def _plan(run: RunDirectory, record: JobRecord, changes: ResumeChanges) -> NextRun:
    async with open_bus(run, held=True) as bus:
        return await plan_next_run(bus, open_store(record.storage), former_run(run, record), changes)
