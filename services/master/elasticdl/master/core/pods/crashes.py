"""Poison batches: too many workers that crash or hang with the same batch running end the job."""

from __future__ import annotations

from elasticdl.master.core.state import State
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.kubernetes.quantities import format_bytes
from elasticdl.shared.messages.events import ExitCause, FailureKind, PodExited, RunningBatch
from elasticdl.shared.names import Purpose, Service, TaskId
from elasticdl.shared.pods.causes import describe_exit

_RECORDS = "Something in these records crashes the model's code. Remove them, or handle them in the model's code."


def on_worker_crashed(state: State, event: PodExited) -> None:
    """Count a worker's crash against every batch that it was running, or the end of a hung one against the stuck batch.

    A worker runs several: it computes one while it reads and feeds the next. A batch that is not the cause is cleared
    when the cause crashes a worker without it. The message names those that all the crashes have in common.
    """
    for running in event.running_batches:
        state.crashes.setdefault(running, set()).add(event.instance)
    crashes_max = state.job.limits.crashes_per_batch_max
    suspects = [running for running in event.running_batches if len(state.crashes[running]) >= crashes_max]
    if not suspects:
        return
    crashes = max(len(state.crashes[running]) for running in suspects)
    places = "\n".join(f"  {_place(state, running)}" for running in suspects)
    text = _hung(state, crashes, places) if event.cause is ExitCause.HUNG else _crashed(event, crashes, places)
    state.fail(f"{text}\n{explanation(event)}".rstrip(), guilty=event.pod, kind=FailureKind.USER_CODE)


def on_worker_silent(state: State, event: PodExited) -> None:
    """Count the kill of an unresponsive worker against every batch that it was running.

    It may have been frozen by something else, so many more than two of them are needed. A batch that is computed in
    the end is not the cause.
    """
    for running in event.running_batches:
        state.silences.setdefault(running, set()).add(event.instance)
    silent_max = state.job.limits.relaunches_max
    suspects = [running for running in event.running_batches if len(state.silences[running]) >= silent_max]
    if suspects:
        places = "\n".join(f"  {_place(state, running)}" for running in suspects)
        state.fail(
            f"{silent_max} workers were killed because they were unresponsive while running the same batch:\n{places}\n"
            "Code that blocks all threads of Python has this effect: native code that hangs, or a regular expression "
            "that takes very long. Fix the model's code, or remove these records.",
            guilty=event.pod,
            kind=FailureKind.USER_CODE,
        )


def _crashed(event: PodExited, crashes: int, places: str) -> str:
    # Memory is short for any batch: the records are not to blame.
    advice = "" if event.cause is ExitCause.OUT_OF_MEMORY else f"\n{_RECORDS}"
    ended = describe_exit(event.exit_code, event.cause)
    return f"{crashes} workers crashed ({ended}) while running the same batch:\n{places}{advice}"


def _hung(state: State, crashes: int, places: str) -> str:
    deadline_s = state.job.limits.batch_deadline_s
    return (
        f"{crashes} workers hung while running the same batch:\n{places}\n"
        f"The model's code does not return from it within {deadline_s:g} s. Fix the code at the place below, or remove "
        "these records. If the code needs more time, raise --batch_deadline_secs."
    )


def explanation(event: PodExited) -> str:
    """The last lines of the log, and what to do about the cause of the exit."""
    advice = _memory_advice(event) if event.cause is ExitCause.OUT_OF_MEMORY else ""
    return f"{event.log_tail}\n{advice}".strip()


def _memory_advice(event: PodExited) -> str:
    """What a process used that ran out of memory, and the flag that gives it more."""
    less = "more ps" if event.service is Service.PS else "smaller minibatches"
    if not event.memory_limit_bytes:
        return f"{event.pod} ran out of memory. Use {less}, or fewer workers."
    limit = event.memory_limit_bytes
    return (
        f"The kernel killed {event.pod} when it used {format_bytes(limit)} of memory, its limit. "
        f"Start the job with --{event.service.value}_resource_request=memory={format_bytes(2 * limit)}, or use {less}."
    )


def forget_crashes(state: State, task: TaskRef) -> None:
    """A task is complete: none of its batches is the cause."""
    for counted in (state.crashes, state.silences):
        for running in [running for running in counted if running.task == task]:
            del counted[running]


def _place(state: State, running: RunningBatch) -> str:
    """``batch 3 of task train 2, records 192 to 255 of file:///data/a.csv``."""
    if running.task.purpose in (Purpose.MERGE, Purpose.EXPORT):
        return f"task {running.task}, which has no records"
    named = f"batch {running.batch} of task {running.task}"
    plan, number = state.plan, running.task.number
    if running.task.purpose in (Purpose.EVALUATE, Purpose.PREDICT) and state.job.validation is not None:
        plan = state.job.validation
        number %= plan.tasks
    elif running.task.purpose is not Purpose.TRAIN:
        return named
    return f"{named}, {_records(plan, TaskId(number), running.batch)}"


def _records(plan: Plan, task: TaskId, batch: int) -> str:
    shard, *others = plan.shards(task)
    uri = plan.sources[shard.source].uri
    count = plan.records_of(task, batch)
    if others:
        return f"{count} of {plan.task_size(task)} records in {1 + len(others)} ranges, the first of which is in {uri}"
    if plan.shuffle in (Shuffle.RECORDS, Shuffle.GLOBAL):
        return f"{count} of the records {shard.start} to {shard.end - 1} (from 0) of {uri}"
    first = shard.start + batch * plan.minibatch_size
    return f"records {first} to {first + count - 1} (from 0) of {uri}"
