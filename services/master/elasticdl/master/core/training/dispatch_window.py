"""The dispatch window: how many training tasks are kept dispatched, and which are dispatched next."""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.epochs import dispatch_limit
from elasticdl.master.core.state import State
from elasticdl.master.core.task_window import WINDOW_TASKS_MAX, fill
from elasticdl.master.core.training.state import Training
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import Dispatch, JobState
from elasticdl.shared.names import Purpose

WINDOW_TASKS_MIN = 64
TASKS_PER_WORKER_MIN = 8


def decide_dispatch(state: State, now_s: float) -> Decisions:
    """Keep the window of dispatched tasks full."""
    training = state.training
    if training is None or not state.all_ps_running or state.job_state is not JobState.TRAINING:
        return []
    elapsed_s = max(now_s - state.first_step_s, 1.0) if state.first_step_s else 1.0
    tasks_per_s = len(training.statistics.counted) / elapsed_s
    window = window_of(tasks_per_s, state.job.limits.window_s, state.workers)
    if rounds := state.job.rounds:
        window = rounds.window
    repeated = tasks_to_repeat(training, window, window // 4 if state.job.rounds is None else 1)
    new = new_tasks(training, window, dispatch_limit(state))
    decisions: Decisions = []
    dispatch = state.dispatches
    if repeated:
        dispatch += 1
        ranges = RangeSet((task, task + 1) for task in repeated).ranges()
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=tuple(ranges), again=True)
        decisions.append((command, f"dispatch {len(repeated)} tasks again that a ps lacks"))
    if new:
        dispatch += 1
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=new)
        decisions.append((command, f"fill the window of {window} tasks"))
    return decisions


def window_of(tasks_per_s: float, window_s: float, workers: int) -> int:
    """How many tasks to keep dispatched: ``window_s`` seconds of work, within limits.

    Args:
        window_s: seconds of work.
        workers: number of wanted workers; each gets at least ``TASKS_PER_WORKER_MIN`` tasks.
    """
    wanted = int(tasks_per_s * window_s)
    return max(WINDOW_TASKS_MIN, TASKS_PER_WORKER_MIN * workers, min(wanted, WINDOW_TASKS_MAX))


def tasks_to_repeat(training: Training, window: int, refill: int) -> list[int]:
    """The tasks to dispatch again that a ps lacks: those among the first ``window`` tasks of the plan to be done.

    Later tasks that are outstanding do not count: synchronous training could wait for an earlier one forever.

    Args:
        refill: dispatch no fewer tasks than this, unless they are all that is lacking.

    Returns:
        Task numbers in ascending order.
    """
    if not training.lacking:
        return []
    first = nsmallest(window, chain(training.lacking, training.outstanding))
    repeated = [task for task in first if task in training.lacking]
    return repeated if len(repeated) >= min(refill, len(training.lacking)) else []


def new_tasks(training: Training, window: int, limit: int) -> tuple[tuple[int, int], ...]:
    """The tasks to dispatch for the first time, so that about ``window`` of those below ``limit`` are outstanding.

    Tasks that are complete without a recorded dispatch, because the log was lost, are left out.

    Returns:
        Ranges ``[start, end)`` of task numbers.
    """
    room = window - len(training.outstanding) - len(training.lacking)
    return fill(training.complete.gaps(training.frontier, limit), room, window)
