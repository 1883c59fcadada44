"""Batches that workers die of: who died with which of them in hand, and when that is too often to be chance."""

from __future__ import annotations

from elasticdl.master.core.state import State
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import FailureKind, PodExited, RunningBatch
from elasticdl.shared.names import Purpose, TaskId


def note_death(state: State, event: PodExited) -> None:
    """Count a worker's death of its own fault against every batch that it had in hand.

    A worker has several: it computes one while it reads and feeds the next. A bystander is cleared by not being in
    hand the next time; those that all the deaths have in common are named together.
    """
    for held in event.running_batches:
        state.deaths.setdefault(held, set()).add(event.pid)
    deaths_max = state.job.limits.poison_deaths_max
    suspects = [held for held in event.running_batches if len(state.deaths[held]) >= deaths_max]
    if not suspects:
        return
    deaths = max(len(state.deaths[held]) for held in suspects)
    signal = f"signal {-event.exit_code}" if event.exit_code < 0 else f"exit code {event.exit_code}"
    places = "\n".join(f"  {_place(state, held)}" for held in suspects)
    state.fail(
        f"{deaths} workers died ({signal}) with the same batch in hand:\n{places}\n"
        "Something in these records makes the model's code crash; take them out or guard against them.\n"
        f"{event.log_tail}".rstrip(),
        guilty=event.pod,
        kind=FailureKind.USER_CODE,
    )


def forget_deaths(state: State, task: TaskRef) -> None:
    """A task was absorbed after all."""
    for held in [held for held in state.deaths if held.task == task]:
        del state.deaths[held]


def _place(state: State, held: RunningBatch) -> str:
    """``batch 3 of task train 2, records 192 to 255 of file:///data/a.csv``."""
    named = f"batch {held.batch} of task {held.task}"
    plan, number = state.plan, held.task.number
    if held.task.purpose is Purpose.EVALUATE and state.job.validation is not None:
        plan = state.job.validation
        number %= plan.tasks
    elif held.task.purpose is not Purpose.TRAIN:
        return named
    return f"{named}, {_records(plan, TaskId(number), held.batch)}"


def _records(plan: Plan, task: TaskId, batch: int) -> str:
    shard = plan.shard(task)
    uri = plan.sources[shard.source].uri
    count = plan.records_of(task, batch)
    if plan.shuffle is Shuffle.RECORDS:
        return f"{count} of the records {shard.start} to {shard.end - 1} (from 0) of {uri}"
    first = shard.start + batch * plan.minibatch_size
    return f"records {first} to {first + count - 1} (from 0) of {uri}"
