"""What the user reads about a job before it starts."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from rich.table import Table

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.imports import threads_each
from elasticdl.cli.submission.submit import Submission
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.process.keras_backend import KERAS_BACKEND, TENSORFLOW
from elasticdl.shared.storage import display
from elasticdl.shared.words import count

_SOURCES_SHOWN = 10


def _max_step_note(plan: Plan) -> str:
    """Where ``--max_step`` ends the plan; empty if it does not."""
    if plan.batches == plan.batches_per_epoch * plan.epochs:
        return ""
    return f", ended by --max_step={plan.max_step} in epoch {plan.epochs_run}"


def start_lines(spec: JobSpec, run: RunDirectory | None = None) -> list[str]:
    """What is printed before a job starts; ``run``: its folder on this machine; None: its processes are elsewhere."""
    lines = [f"Job {spec.job}: {_work_text(spec)}"]
    if run:
        threads = count(threads_each(spec.processes), "thread")
        lines += [f"{_processes_text(spec)}, {threads} each.", f"Logs: {run.logs}"]
    else:
        lines.append(f"{_processes_text(spec)}.")
    if spec.initial:
        lines.append(_initial_text(spec.initial))
    if spec.model.exported:
        lines.append(f"Model: {display(spec.model.exported)}.")
    if spec.prediction:
        lines.append(f"Predictions: {display(spec.output)}.")
    if spec.tensorboard_log_dir:
        lines.append(f"Curves: tensorboard --logdir={shlex.quote(display(spec.tensorboard_log_dir))}")
    if note := _small_batches_text(spec):
        lines.append(note)
    if (backend := os.environ.get(KERAS_BACKEND, TENSORFLOW)) != TENSORFLOW:
        lines.append(f"{KERAS_BACKEND}={backend} has no effect on the job: it trains with Keras on TensorFlow.")
    is_asynchronous = spec.kind.trains and not spec.synchronous
    if spec.workers > 1 and is_asynchronous and spec.max_staleness != 0:
        synchronous = f"--global_batch_size={_near_multiple(spec.plan.minibatch_size, spec.workers)}"
        if spec.plan.counts_batches or (run and Path(spec.model.path).is_relative_to(run.path)):
            synchronous = "--grads_to_wait=1"  # The model of a script, whose fit() says how large a minibatch is.
        lines.append(
            f"{spec.workers} workers train asynchronously: a gradient may be {_staleness_text(spec)} old. With an "
            "optimizer without momentum, such as plain SGD, the model may end worse than with fit(). "
            f"--use_async=false {synchronous} makes the updates of fit()."
        )
    return lines


def _work_text(spec: JobSpec) -> str:
    """What a job does, as a sentence such as ``500 records x 2 epochs = 16 batches in 2 tasks. Seed 5.``."""
    plan = spec.plan
    if not spec.kind.trains:
        return f"{spec.kind.value}s {count(spec.work.records, 'record')} in {count(spec.work.tasks, 'task')}."
    epochs, tasks = f"{count(plan.epochs, 'epoch')}{_max_step_note(plan)}", count(plan.tasks, "task")
    if plan.counts_batches:
        return f"{count(plan.batches_per_epoch, 'batch', 'batches')} x {epochs} in {tasks}. Seed {plan.seed}."
    return (
        f"{count(plan.records_per_epoch, 'record')} x {epochs} = {count(plan.batches, 'batch', 'batches')} in {tasks}. "
        f"Seed {plan.seed}."
    )


def _staleness_text(spec: JobSpec) -> str:
    if not spec.bounds_staleness:
        return "any number of updates"
    bound = spec.workers - 1 if spec.max_staleness is None else spec.max_staleness
    return f"up to {count(bound, 'update')}"


def _small_batches_text(spec: JobSpec) -> str:
    """That most batches are small because files are; empty if they are not."""
    plan = spec.plan
    if not spec.kind.trains or plan.is_global or not plan.batches_per_epoch:
        return ""
    mean = plan.records_per_epoch / plan.batches_per_epoch
    if len(plan.sources) == 1 or mean > plan.minibatch_size / 2:
        return ""
    return (
        f"Batches have {mean:.1f} records on average instead of {plan.minibatch_size}, because the files are small and "
        "a batch has records of one file. With --shuffle=global, a batch has records of several files, as with fit()."
    )


def _near_multiple(number: int, divisor: int) -> int:
    """The multiple of a number, at least the number itself, that is nearest to another one."""
    return max(divisor, round(number / divisor) * divisor)


def _initial_text(initial: InitialModel) -> str:
    return f"Initial weights: {initial.text}."


def _processes_text(spec: JobSpec) -> str:
    """``2 workers and 1 parameter server``."""
    if spec.has_ring:
        beside = f", and {count(spec.ps_pods, 'parameter server')} for the tables" if spec.ps_pods else ""
        return f"{count(spec.workers, 'worker')} in a ring{beside}"
    return f"{count(spec.workers, 'worker')} and {count(spec.ps, 'parameter server')}"


def print_plan(submission: Submission, console: JobConsole) -> None:
    """Print the plan: records, batches and tasks by data source, processes and destinations."""
    spec = submission.spec
    console.print_line(f"Plan {spec.plan.fingerprint} of {spec.model.path}:{spec.model.symbol}")
    for name, plan in (("training", spec.plan), ("validation", spec.validation)):
        if plan is not None:
            _print_sources(name, plan, console)
    if note := _small_batches_text(spec):
        console.print_line(note)
    console.print_line(f"{_processes_text(spec)}, seed {spec.plan.seed}, shuffle {spec.plan.shuffle.value}")
    if spec.initial:
        console.print_line(_initial_text(spec.initial))
    console.print_line(f"Output: {display(spec.output) or 'none'}. Snapshots: {display(spec.storage)}")


def _print_sources(name: str, plan: Plan, console: JobConsole) -> None:
    table = Table(title=f"{name} data", title_justify="left")
    for column in ("source", "records", "batches", "tasks"):
        table.add_column(column, justify="left" if column == "source" else "right", overflow="fold")
    for source in plan.sources[:_SOURCES_SHOWN]:
        whole, tail = divmod(source.records, plan.task_records)
        batches = whole * plan.minibatches_per_task + -(-tail // plan.minibatch_size)
        tasks = whole + (tail > 0)
        shares = ("", "") if plan.is_global else (f"{batches:,}", f"{tasks:,}")
        table.add_row(display(source.uri), f"{source.records:,}", *shares)
    if rest := plan.sources[_SOURCES_SHOWN:]:
        table.add_row(f"and {count(len(rest), 'source')} more", f"{sum(one.records for one in rest):,}", "", "")
    table.add_section()
    table.add_row(
        "one epoch", f"{plan.records_per_epoch:,}", f"{plan.batches_per_epoch:,}", f"{plan.tasks_per_epoch:,}"
    )
    if name == "training":
        row = f"all epochs ({plan.epochs}){_max_step_note(plan)}"
        table.add_row(row, f"{plan.records:,}", f"{plan.batches:,}", f"{plan.tasks:,}")
    console.print(table)
