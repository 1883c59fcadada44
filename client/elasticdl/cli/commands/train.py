"""``elasticdl train``: plan, then run, or with ``--dry_run`` only tell."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import cut_text, run_job, start_lines
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
    console = JobConsole()
    submission = prepare(flags, root, lambda line: console.print(line, markup=False, soft_wrap=True))
    spec = submission.spec
    if flags.dry_run:
        print_plan(submission, console)
        return exit_codes.DONE
    run = RunDirectory(root, spec.job)
    run.create()
    with run.lock():
        record = _record(submission, flags)
        try:
            run.write(record)
            submission.save_indices()
        except ElasticDLError:
            run.remove()  # Nothing was begun: leave nothing behind.
            raise
        for line in start_lines(run, spec):
            console.print(line, markup=False, soft_wrap=True)
        opening = JobSubmitted(spec=spec)
        return run_job(run, record, spec, opening, started_s=started_s, report=flags.report, debug=flags.debug)


def print_plan(submission: Submission, console: Console) -> None:
    """What would be done: tasks, batches and records, by source."""
    spec = submission.spec
    console.print(
        f"plan {spec.plan.fingerprint} of {spec.model.path}:{spec.model.symbol}", markup=False, soft_wrap=True
    )
    for what, plan in (("training", spec.plan), ("validation", spec.validation)):
        if plan is not None:
            _print_sources(what, plan, console)
    console.print(
        f"{spec.workers} workers, {spec.ps} ps, seed {spec.plan.seed}, shuffle {spec.plan.shuffle.value}; "
        f"output {display(spec.output) or 'none'}; snapshots in {display(spec.storage)}",
        markup=False,
        soft_wrap=True,
    )


def _print_sources(what: str, plan: Plan, console: Console) -> None:
    table = Table(title=f"{what} data", title_justify="left")
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
    if what == "training":
        name = f"all epochs ({plan.epochs}){cut_text(plan)}"
        table.add_row(name, f"{plan.records:,}", f"{plan.batches:,}", f"{plan.tasks:,}")
    console.print(table)


def _record(submission: Submission, flags: TrainFlags) -> JobRecord:
    spec = submission.spec
    return JobRecord(
        job=spec.job,
        created_s=spec.created_s,
        state=JobState.STARTING.value,
        model=f"{spec.model.path}:{spec.model.symbol}",
        model_files=submission.model_files,
        training_data=flags.training_data,
        output=display(spec.output),
        storage=spec.storage,
        nats_url=flags.nats_url,
        own_nats=not flags.nats_url,
        launcher_pid=os.getpid(),
    )
