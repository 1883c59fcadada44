"""Tasks that failed for good, and which of them a resume may skip."""

from __future__ import annotations

from elasticdl.master.core.state import State
from elasticdl.master.core.training.apply import FATAL_FAILURES
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import Purpose, TaskId


def failed_for_good(state: State) -> dict[TaskId, str]:
    """Training tasks whose failures end the job, each with its last failure in a line."""
    limits = state.job.limits
    found: dict[TaskId, str] = {}
    for task, failures in state.failures.items():
        last = failures[-1]
        if task.purpose is Purpose.TRAIN and (last.kind in FATAL_FAILURES or len(failures) >= limits.attempts_max):
            found[TaskId(task.number)] = last.message.partition("\n")[0]
    for counted, most, text in (
        (state.crashes, limits.crashes_per_batch_max, "workers crash or hang while running batch"),
        (state.silences, limits.relaunches_max, "workers do not respond while running batch"),
    ):
        for running, instances in counted.items():
            if running.task.purpose is Purpose.TRAIN and len(instances) >= most:
                found.setdefault(TaskId(running.task.number), f"{text} {running.batch}")
    return dict(sorted(found.items()))


def apply_skip(state: State, ranges: tuple[tuple[int, int], ...]) -> None:
    """Apply that a resume skips tasks: they count as done, and the audit names them.

    Synchronous training has no use for it: the batches of a round are fixed by the plan.
    """
    if state.training is None or state.job.rounds is not None or state.job.has_ring:
        return
    tasks = state.plan.tasks
    state.training.skip(RangeSet((max(0, start), min(end, tasks)) for start, end in ranges))
