"""Poison batches: too many workers that crash or hang with the same batch running end the job."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.master.core.state import State
from elasticdl.shared.job.model_file import WEIGHTS_FILE
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.kubernetes.quantities import format_bytes
from elasticdl.shared.messages.events import ExitCause, FailureKind, PodExited, RunningBatch
from elasticdl.shared.names import Purpose, Service, TaskId
from elasticdl.shared.pods.causes import describe_exit
from elasticdl.shared.words import some_of

_FILES_SHOWN = 4
"""Files of a batch with records from all over the data, with up to 17 ranges of records in all."""
_RECORDS = "Something in these records crashes the model's code. Remove them, or handle them in the model's code."
_EXPORT = (
    "The model crashes TensorFlow or Keras while it is written. If its weights could be written alone, they are in "
    f"{WEIGHTS_FILE} of the output."
)


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
    hung = event.cause is ExitCause.HUNG
    text = _hung(state, crashes, places) if hung else _crashed(event, suspects, crashes, places)
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


def _crashed(event: PodExited, suspects: Sequence[RunningBatch], crashes: int, places: str) -> str:
    is_export = all(running.task.purpose is Purpose.EXPORT for running in suspects)
    ended = describe_exit(event.exit_code, event.cause)
    doing = "writing the model" if is_export else "running the same batch"
    advice = f"\n{_EXPORT if is_export else _RECORDS}"
    if event.cause is ExitCause.OUT_OF_MEMORY:
        advice = ""  # Memory is short for any batch: the records are not to blame.
    return f"{crashes} workers crashed ({ended}) while {doing}:\n{places}{advice}"


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
        if not counted:  # Nearly always.
            continue
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
    shards = plan.shards(task)
    count = plan.records_of(task, batch)
    if plan.shuffle in (Shuffle.RECORDS, Shuffle.GLOBAL):
        sources = dict.fromkeys(shard.source for shard in shards)
        places = [
            f"{', '.join(f'{one.start} to {one.end - 1}' for one in shards if one.source == source)} (from 0) of "
            f"{plan.sources[source].uri}"
            for source in sources
        ]
        return f"{count} of the records {some_of(places, _FILES_SHOWN)}"
    shard = shards[0]
    first = shard.start + batch * plan.minibatch_size
    return f"records {first} to {first + count - 1} (from 0) of {plan.sources[shard.source].uri}"
