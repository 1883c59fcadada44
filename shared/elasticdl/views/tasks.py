"""The training tasks of a job and their states, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from elasticdl.master.core import State
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.storage import display
from elasticdl.shared.words import count, times

TASK_COLUMNS = ("task", "epoch", "source", "records", "batches", "state")


class TaskFilter(Enum):
    """States that tasks are filtered by. A task that failed before is also in one of the other states."""

    FINISHED = "finished"
    RUNNING = "running"
    DISPATCHED = "dispatched"
    REQUEUED = "requeued"
    PENDING = "pending"
    FAILED = "failed"


def task_counts(state: State) -> dict[str, int]:
    """The number of tasks by state, as JSON values."""
    training = state.training
    if training is None:
        return {}
    return {
        "all": state.plan.tasks,
        "finished": len(training.complete),
        "running": sum(ref.purpose is Purpose.TRAIN for ref in state.running_attempts),
        "dispatched": len(training.outstanding),
        "requeued": len(training.lacking),
    }


def count_tasks(state: State) -> str:
    """``task_counts`` in one line."""
    counts = task_counts(state)
    if not counts:
        return "0 training tasks"
    return (
        f"{counts['finished']:,} of {counts['all']:,} training tasks finished, {counts['running']:,} running, "
        f"{counts['dispatched']:,} dispatched and not finished, {counts['requeued']:,} requeued"
    )


def task_rows(state: State, wanted: TaskFilter | None, limit: int) -> tuple[list[tuple[str, ...]], bool]:
    """The first ``limit`` rows (number, epoch, source, records, batches, state), and whether there are more.

    Args:
        wanted: which tasks; None: those that are not finished, or all tasks if training has finished.
    """
    rows: list[tuple[str, ...]] = []
    plan = state.plan
    for number in _candidates(state, wanted):
        kind, text = _task_state(state, number)
        failed = wanted is TaskFilter.FAILED and _failures(state, number) > 0
        if wanted is not None and kind is not wanted and not failed:
            continue
        if len(rows) == limit:
            return rows, True
        source, records = _place(plan, number)
        rows.append((str(number), str(plan.epoch(number) + 1), source, records, str(plan.batches_of(number)), text))
    return rows, False


def _place(plan: Plan, number: TaskId) -> tuple[str, str]:
    """The source and the records of a task, or how many there are."""
    shard, *others = plan.shards(number)
    if others:
        sources = {each.source for each in (shard, *others)}
        return count(len(sources), "file"), f"{plan.task_size(number)} in {1 + len(others)} ranges"
    return display(plan.sources[shard.source].uri).rpartition("/")[2], f"{shard.start}-{shard.end - 1}"


def _candidates(state: State, wanted: TaskFilter | None) -> Iterator[TaskId]:
    training = state.training
    if training is None:
        return
    if training.is_complete or wanted in (TaskFilter.FINISHED, TaskFilter.FAILED):
        yield from state.plan.task_ids()
        return
    for start, end in training.complete.gaps(0, state.plan.tasks):
        yield from (TaskId(number) for number in range(start, end))


def _failures(state: State, number: TaskId) -> int:
    return len(state.failures.get(TaskRef(purpose=Purpose.TRAIN, number=number), ()))


def _task_state(state: State, number: TaskId) -> tuple[TaskFilter, str]:
    ref = TaskRef(purpose=Purpose.TRAIN, number=number)
    training = state.training
    failures = _failures(state, number)
    failed = f", failed {times(failures)}" if failures else ""
    holders = state.running_attempts.get(ref)
    if holders:
        workers = ", ".join(holding.worker for holding in holders.values())
        return TaskFilter.RUNNING, f"running on {workers}{failed}"
    if training is not None and number in training.complete:
        return TaskFilter.FINISHED, f"finished{failed}"
    if training is None or number >= training.frontier:
        return TaskFilter.PENDING, "pending"
    kind = TaskFilter.REQUEUED if number in training.lacking else TaskFilter.DISPATCHED
    return kind, kind.value + failed
