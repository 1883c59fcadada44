"""The training tasks of a job and their states, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from elasticdl.master.core import State
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import TaskFailed
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.storage import display
from elasticdl.shared.words import count, some_of
from elasticdl.shared.words import times as times_text
from elasticdl.views.task_times import TIME_COLUMNS, TaskTime, slowest

TASK_COLUMNS = ("task", "epoch", "source", "records", "batches", "state")


class TaskFilter(Enum):
    """States that tasks are filtered by. A task that failed before is also in one of the other states."""

    FINISHED = "finished"
    RUNNING = "running"
    DISPATCHED = "dispatched"
    REQUEUED = "requeued"
    PENDING = "pending"
    FAILED = "failed"
    SKIPPED = "skipped"


_OF_ALL = (TaskFilter.FINISHED, TaskFilter.FAILED, TaskFilter.SKIPPED)
"""States that tasks which count as done may have."""
_NAMED_MAX = 8
"""Tasks that a sentence names."""


def task_counts(state: State) -> dict[str, int]:
    """The number of tasks by state, as JSON values."""
    training = state.training
    if training is None:
        return {}
    return {
        "all": state.plan.tasks,
        "finished": len(training.complete) - len(training.skipped),
        "running": sum(ref.purpose is Purpose.TRAIN for ref in state.running_attempts),
        "dispatched": len(training.outstanding),
        "requeued": len(training.lacking),
        "skipped": len(training.skipped),
    }


def count_tasks(state: State) -> str:
    """``task_counts`` in one line."""
    counts = task_counts(state)
    if not counts:
        return "0 training tasks"
    return (
        f"{counts['finished']:,} of {counts['all']:,} training tasks finished, {counts['running']:,} running, "
        f"{counts['dispatched']:,} dispatched and not finished, {counts['requeued']:,} requeued"
        + (f", {counts['skipped']:,} skipped" if counts["skipped"] else "")
    )


def tasks_text(numbers: Collection[int]) -> str:
    """``task 17``, ``tasks 17, 20, 21``; of many only the first ones."""
    return f"{'task' if len(numbers) == 1 else 'tasks'} {some_of(list(map(str, numbers)), _NAMED_MAX)}"


def skipped_tasks(state: State) -> list[dict[str, Any]]:
    """The tasks that a resume has skipped, as JSON values, with their records."""
    found = []
    for number in state.training.skipped if state.training else ():
        source, records = _place(state.plan, TaskId(number))
        found.append({"task": number, "source": source, "records": records})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Which tasks to show.

    Attributes:
        state: those in this state; None: those that are not finished, or all tasks if training has finished.
        epoch: those of this epoch, from 1; 0: of all.
        worker: those that this worker has finished or is computing; empty: of all.
        slowest: this many finished tasks that took longest, the slowest first; 0: in the order of their numbers.
        limit: at most this many.
    """

    state: TaskFilter | None = None
    epoch: int = 0
    worker: str = ""
    slowest: int = 0
    limit: int = 50

    @property
    def needs_times(self) -> bool:
        """Whether the durations of tasks are needed, which the state of a job does not hold."""
        return bool(self.worker or self.slowest)


def task_rows(
    state: State, query: TaskQuery, times: Mapping[TaskId, TaskTime] | None = None
) -> tuple[list[tuple[str, ...]], bool]:
    """Rows with the values of ``TASK_COLUMNS``, and whether there are more.

    Args:
        times: of the finished tasks, which also gives the values of ``TIME_COLUMNS``; None: without.
    """
    rows: list[tuple[str, ...]] = []
    plan = state.plan
    limit = min(query.limit, query.slowest or query.limit)
    for number in _candidates(state, query, times or {}):
        if query.epoch and plan.epoch(number) + 1 != query.epoch:
            continue
        kind, text = _task_state(state, number)
        failed = query.state is TaskFilter.FAILED and _failures(state, number) > 0
        if query.state is not None and kind is not query.state and not failed:
            continue
        time = (times or {}).get(number)
        if query.worker and not (time and time.worker == query.worker) and query.worker not in _workers(state, number):
            continue
        if len(rows) == limit:
            return rows, not query.slowest
        source, records = _place(plan, number)
        row: tuple[str, ...] = (
            str(number),
            str(plan.epoch(number) + 1),
            source,
            records,
            str(plan.batches_of(number)),
            text,
        )
        if times is not None:
            row += time.row if time else ("",) * len(TIME_COLUMNS)
        rows.append(row)
    return rows, False


def _place(plan: Plan, number: TaskId) -> tuple[str, str]:
    """The source and the records of a task, or how many there are."""
    shard, *others = plan.shards(number)
    if others:
        sources = {each.source for each in (shard, *others)}
        return count(len(sources), "file"), f"{plan.task_size(number)} in {1 + len(others)} ranges"
    return display(plan.sources[shard.source].uri).rpartition("/")[2], f"{shard.start}-{shard.end - 1}"


def _candidates(state: State, query: TaskQuery, times: Mapping[TaskId, TaskTime]) -> Iterator[TaskId]:
    training = state.training
    if training is None:
        return
    if query.slowest:
        yield from (number for number in slowest(times) if number < state.plan.tasks)
        return
    if training.is_complete or query.worker or query.state in _OF_ALL:
        yield from state.plan.task_ids()
        return
    for start, end in training.complete.gaps(0, state.plan.tasks):
        yield from (TaskId(number) for number in range(start, end))


def _workers(state: State, number: TaskId) -> set[str]:
    """The workers that are computing a task."""
    holders = state.running_attempts.get(TaskRef(purpose=Purpose.TRAIN, number=number), {})
    return {holding.worker for holding in holders.values()}


def failures_of(state: State, number: TaskId) -> Sequence[TaskFailed]:
    """The failed attempts at a training task, with their messages and tracebacks."""
    return state.failures.get(TaskRef(purpose=Purpose.TRAIN, number=number), ())


def _failures(state: State, number: TaskId) -> int:
    return len(failures_of(state, number))


def _task_state(state: State, number: TaskId) -> tuple[TaskFilter, str]:
    ref = TaskRef(purpose=Purpose.TRAIN, number=number)
    training = state.training
    failures = _failures(state, number)
    failed = f", failed {times_text(failures)}" if failures else ""
    holders = state.running_attempts.get(ref)
    if holders:
        workers = ", ".join(holding.worker for holding in holders.values())
        return TaskFilter.RUNNING, f"running on {workers}{failed}"
    if training is not None and number in training.skipped:
        return TaskFilter.SKIPPED, f"skipped{failed}"
    if training is not None and number in training.complete:
        return TaskFilter.FINISHED, f"finished{failed}"
    if training is None or number >= training.frontier:
        return TaskFilter.PENDING, "pending"
    kind = TaskFilter.REQUEUED if number in training.lacking else TaskFilter.DISPATCHED
    return kind, kind.value + failed
