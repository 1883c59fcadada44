"""``elasticdl status``, ``tasks`` and ``task``: views of a job's event log, live or afterwards.

They fold the log with the master's own core, so they show exactly what the master knows.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.next_steps import find_next_step
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.cli.display.report import print_summary
from elasticdl.cli.display.status import print_state, status_facts, without_processes
from elasticdl.cli.jobs.folded import history, recovered, task_times
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.master.core import State
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.plan import Plan, Shard
from elasticdl.shared.job.spec import Limits
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.storage import display
from elasticdl.shared.words import count
from elasticdl.views.reading import clock_of
from elasticdl.views.report import build
from elasticdl.views.task_times import TIME_COLUMNS
from elasticdl.views.tasks import (
    TASK_COLUMNS,
    TaskFilter,
    TaskQuery,
    count_tasks,
    failures_of,
    task_counts,
    task_rows,
)


def status(job: ReadableJob, *, as_json: bool, evaluations: int) -> None:
    """Print the status of a job; ``evaluations``: how many to show, 0: all. The JSON object holds all of them."""
    condition = job.condition()
    alive = condition.is_running
    console = plain_console()
    if not as_json and (suspended := condition.suspension):
        console.print(
            f"The {suspended.process} is suspended: no process is replaced. To continue it: {suspended.remedy}"
        )
    try:
        wants_all = as_json or not 0 < evaluations <= Limits().evaluations_max
        state, problem = recovered(job, all_evaluations=wants_all).state, "holds no job" + (" yet" if alive else "")
    except ElasticDLError:
        if not condition.waiting:
            raise
        state, problem = State(), "can't be read"  # The job may wait for the very server that holds its log.
    if as_json:
        print_json(console, status_facts(job.job, condition, state))
        return
    if state.spec is None:
        console.print(f"{job.job}: {condition.state}. Its event log {problem}.")
        if message := condition.message or condition.waiting:
            console.print(message)
        elif condition.is_ended and condition.state != JobState.SUCCEEDED.value:
            console.print(find_next_step(job, state))
        return
    if condition.waiting:
        console.print(condition.waiting)
    if condition.is_ended and not state.is_final:
        console.print(f"{job.job} {condition.end}. {condition.next_step or find_next_step(job, state)}")
    if condition.was_running:
        console.print("The job was running when its event log was exported.")
    now_s = clock_of(state).now() if alive else state.now_s
    print_state(without_processes(state, condition), console, now_s, evaluations=evaluations)


def report(job: ReadableJob, *, as_json: bool) -> None:
    """Print the report of a job, as at the end of its training."""
    condition = job.condition()
    state = recovered(job).state
    if state.spec is None:
        raise UserError(f"the event log of {job.job} holds no job")
    ended = state.measured is not None and state.measured.ended_s > 0
    facts = build(state if ended else without_processes(state, condition))
    console = plain_console()
    if as_json:
        print_json(console, facts)
    else:
        print_summary(facts, console)


def tasks(job: ReadableJob, query: TaskQuery, *, as_json: bool = False) -> None:
    """Print the training tasks that are not finished; all tasks if the job has finished them."""
    condition = job.condition()
    times = task_times(job) if query.needs_times else None
    state = recovered(job, all_evaluations=False).state
    state = without_processes(state, condition)
    if state.spec is None or state.training is None:
        raise UserError(f"the event log of {job.job} holds no job yet")
    console = plain_console()
    columns = (*TASK_COLUMNS, *(TIME_COLUMNS if times is not None else ()))
    rows, more = task_rows(state, query, times)
    if as_json:
        found: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
        for each in found:
            each["failures"] = list(failures_of(state, TaskId(int(each["task"]))))
        print_json(console, {"job": job.job, "counts": task_counts(state), "tasks": found, "more": more})
        return
    console.print(count_tasks(state))
    if not rows:
        console.print(
            "No task matches these filters." if query != TaskQuery(limit=query.limit) else "There are no tasks."
        )
        return
    print_table(console, columns, rows)
    if query.state is TaskFilter.FAILED:
        for row in rows:
            for failure in failures_of(state, TaskId(int(row[0]))):
                console.print(f"task {row[0]}, batch {failure.batch} ({failure.kind.value}): {failure.message}")
                if failure.traceback:
                    console.print(failure.traceback.rstrip())
    if more:
        states = ", ".join(each.value for each in TaskFilter)
        console.print(f"The first {query.limit}. To show more: --limit=N. To filter: --state=STATE ({states}).")


def task_filter(text: str) -> TaskFilter | None:
    """The value of ``--state``; None: any state."""
    try:
        return TaskFilter(text) if text else None
    except ValueError as error:
        names = ", ".join(each.value for each in TaskFilter)
        raise UserError(f"--state={text} is not a state of tasks", hint=f"Use one of {names}.", usage=True) from error


def task(job: ReadableJob, number: int, purpose: str, *, as_json: bool = False) -> None:
    """Print the history of one task, or one JSON object with it."""
    try:
        ref = TaskRef(purpose=Purpose(purpose), number=number)
    except ValueError as error:
        names = ", ".join(each.value for each in Purpose)
        raise UserError(
            f"--purpose={purpose} is not a kind of task", hint=f"Use one of {names}.", usage=True
        ) from error
    state = recovered(job, all_evaluations=False).state
    console = plain_console()
    if ref.purpose is Purpose.TRAIN and state.spec is not None:
        if number >= state.plan.tasks:
            raise UserError(f"there is no task {number}", hint=f"{job.job} has tasks 0 to {state.plan.tasks - 1}.")
        if not as_json:
            _print_shard(state, TaskId(number), console)
    entries = history(job, ref)
    if as_json:
        print_json(console, {"job": job.job, "task": number, "purpose": purpose, "history": map(asdict, entries)})
        return
    lines = list(map(str, entries))
    for line in lines or ["No events yet."]:
        console.print(line)


def _print_shard(state: State, number: TaskId, console: Console) -> None:
    plan = state.plan
    shard, *others = plan.shards(number)
    records = _records(plan, shard) if not others else count(plan.task_size(number), "record")
    console.print(
        f"task {number}: epoch {plan.epoch(number) + 1} of {plan.epochs}, {records}, "
        f"{count(plan.batches_of(number), 'batch', 'batches')}"
    )
    for each in (shard, *others) if others else ():
        console.print(f"  {_records(plan, each)}")


def _records(plan: Plan, shard: Shard) -> str:
    return f"records {shard.start} to {shard.end - 1} of {display(plan.sources[shard.source].uri)}"
