"""The dispatch window: how many training tasks are kept dispatched, and which are dispatched next."""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.epochs import dispatch_limit
from elasticdl.master.core.state import State
from elasticdl.master.core.training.state import Training
from elasticdl.shared.messages.commands import Dispatch, JobState
from elasticdl.shared.names import Purpose

WINDOW_TASKS_MIN = 64
TASKS_PER_WORKER_MIN = 8
WINDOW_TASKS_MAX = 16_384
COHORTS_AHEAD = 3
"""Synchronous training: cohorts that are kept dispatched. What is dispatched again must not queue behind many tasks."""
REPEATED_TASKS_MAX = 1024
"""Tasks that one decision dispatches again, each as a range of its own."""


def decide_dispatch(state: State, now_s: float) -> Decisions:
    """Keep the window of dispatched tasks full."""
    training = state.training
    if training is None or not state.all_ps_running or state.job_state is not JobState.TRAINING:
        return []
    elapsed_s = max(now_s - state.first_step_s, 1.0) if state.first_step_s else 1.0
    tasks_per_s = len(training.statistics.counted) / elapsed_s
    window = window_of(tasks_per_s, state.job.limits.window_s, state.workers)
    if rounds := state.job.rounds:
        window = COHORTS_AHEAD * rounds.tasks_per_cohort
    repeated, new = next_tasks(training, window, dispatch_limit(state))
    decisions: Decisions = []
    dispatch = state.dispatches
    if repeated:
        dispatch += 1
        ranges = tuple((task, task + 1) for task in repeated)
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=ranges, again=True)
        decisions.append((command, f"dispatch {len(repeated)} tasks again that a ps lacks"))
    if new:
        dispatch += 1
        command = Dispatch(purpose=Purpose.TRAIN, dispatch=dispatch, tasks=new)
        decisions.append((command, f"fill the window of {window} tasks"))
    return decisions


def window_of(tasks_per_s: float, window_s: float, workers: int) -> int:
    """How many tasks to keep dispatched: ``window_s`` seconds of work, within limits.

    Args:
        tasks_per_s: tasks that all workers together finish in a second.
        window_s: seconds of work.
        workers: number of wanted workers; each gets at least ``TASKS_PER_WORKER_MIN`` tasks.
    """
    wanted = int(tasks_per_s * window_s)
    return max(WINDOW_TASKS_MIN, TASKS_PER_WORKER_MIN * workers, min(wanted, WINDOW_TASKS_MAX))


def next_tasks(training: Training, window: int, limit: int) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    """The tasks to dispatch now, so that about ``window`` of those below ``limit`` are outstanding.

    Tasks that are complete without a recorded dispatch, because the log was lost, are left out.

    Returns:
        Task numbers to dispatch again, and ranges ``[start, end)`` to dispatch for the first time.
    """
    repeated = sorted(training.lacking)[:REPEATED_TASKS_MAX]
    room = window - len(training.outstanding) - len(repeated)
    ranges: list[tuple[int, int]] = []
    # Refill when a quarter is free, so that a decision holds many tasks.
    if room * 4 >= window:
        for start, end in training.complete.gaps(training.frontier, limit):
            ranges.append((start, min(end, start + room)))
            room -= end - start
            if room <= 0:
                break
    return repeated, tuple(ranges)
