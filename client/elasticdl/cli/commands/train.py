"""``elasticdl train``: plans a job and runs it; with ``--dry_run`` it prints the plan and tries the model."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.table import Table

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import RunOptions, max_step_note, processes_text, run_job, try_model
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.submit import Submission, prepare
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import JobSubmitted
from elasticdl.shared.storage import display


def train(flags: TrainFlags, root: Path) -> int:
    """Run the command.

    Returns:
        Its exit code.

    Raises:
        ElasticDLError: the job can't be planned or started.
    """
    started_s = time.time()
    check_extras()
    console = JobConsole()
    submission = prepare(flags, root, console.print_line)
    spec = submission.spec
    if flags.dry_run:
        print_plan(submission, console)
        for line in try_model(submission):
            console.print_line(line)
        return exit_codes.SUCCESS
    run = RunDirectory(root, spec.job)
    run.create()
    with run.lock():
        record = job_record(submission, flags)
        try:
            run.write(record)
            submission.save_indices(spec.storage)
        except ElasticDLError:
            run.remove()  # The job did not start, so leave nothing behind.
            raise
        options = RunOptions(started_s=started_s, report=flags.report, debug=flags.debug, checks_model=True)
        return run_job(run, record, spec, (JobSubmitted(spec=spec),), options)


def job_record(submission: Submission, flags: TrainFlags) -> JobRecord:
    """The first content of ``job.json``."""
    spec = submission.spec
    return JobRecord(
        job=spec.job,
        created_s=spec.created_s,
        state=JobState.STARTING.value,
        model=f"{spec.model.path}:{spec.model.symbol}",
        model_files=submission.model_files,
        working_directory=os.getcwd(),
        training_data=flags.training_data,
        output=display(spec.output),
        storage=spec.storage,
        nats_url=flags.nats_url,
        own_nats=not flags.nats_url,
        launcher_pid=os.getpid(),
    )


def print_plan(submission: Submission, console: JobConsole) -> None:
    """Print the plan: records, batches and tasks by data source, processes and destinations."""
    spec = submission.spec
    console.print_line(f"Plan {spec.plan.fingerprint} of {spec.model.path}:{spec.model.symbol}")
    for name, plan in (("training", spec.plan), ("validation", spec.validation)):
        if plan is not None:
            _print_sources(name, plan, console)
    console.print_line(f"{processes_text(spec)}, seed {spec.plan.seed}, shuffle {spec.plan.shuffle.value}")
    console.print_line(f"Output: {display(spec.output) or 'none'}. Snapshots: {display(spec.storage)}")


def _print_sources(name: str, plan: Plan, console: JobConsole) -> None:
    table = Table(title=f"{name} data", title_justify="left")
    for column in ("source", "records", "batches", "tasks"):
        table.add_column(column, justify="left" if column == "source" else "right", overflow="fold")
    for source in plan.sources:
        whole, tail = divmod(source.records, plan.task_records)
        batches = whole * plan.minibatches_per_task + -(-tail // plan.minibatch_size)
        tasks = whole + (tail > 0)
        table.add_row(display(source.uri), f"{source.records:,}", f"{batches:,}", f"{tasks:,}")
    table.add_section()
    table.add_row(
        "one epoch", f"{plan.records_per_epoch:,}", f"{plan.batches_per_epoch:,}", f"{plan.tasks_per_epoch:,}"
    )
    if name == "training":
        row = f"all epochs ({plan.epochs}){max_step_note(plan)}"
        table.add_row(row, f"{plan.records:,}", f"{plan.batches:,}", f"{plan.tasks:,}")
    console.print(table)
