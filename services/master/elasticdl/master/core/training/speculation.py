"""Speculative execution: second attempts of stragglers (slow tasks), at the end of a job or an epoch for idle workers.

In synchronous training all workers wait for the slowest one, so there it happens at any time: as soon as a worker says
that it waits.

The ledger makes a second attempt harmless: a batch is absorbed once, whichever worker pushes it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.epochs import dispatch_limit
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import SPECULATION
from elasticdl.master.core.training.state import Training
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import Command, Dispatch, JobState, SetTimer
from elasticdl.shared.names import Purpose, Service, TaskId


class SpeculationPolicy(Protocol):
    """When a task counts as slow."""

    def slow_after_s(self, mean_task_s: float) -> float:
        """Seconds that one worker may run a task before another worker gets it, too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleOfMean:
    """A task is slow after ``factor`` times the mean, and never before ``min_s`` seconds."""

    factor: float = 3.0
    min_s: float = 3.0

    def slow_after_s(self, mean_task_s: float) -> float:
        """See ``SpeculationPolicy``."""
        return max(self.factor * mean_task_s, self.min_s)


DEFAULT = MultipleOfMean()

ALL_REPORT_S = 2.0
"""Synchronous training: seconds from the first worker that says that it waits to the last of those that do."""


def decide_speculation(state: State, now_s: float, policy: SpeculationPolicy = DEFAULT) -> Decisions:
    """Dispatch slow tasks once more, as many as there are idle workers, if no other task is left for them."""
    training = state.training
    if training is None or state.job_state is not JobState.TRAINING:
        return []
    if awaited := _awaited_tasks(state, training):
        due_s = training.waiting_since_s + ALL_REPORT_S
        if now_s >= due_s:
            return [_second_attempts(state, awaited)]
        return _timer(state, due_s, "all workers that wait will have said so then")
    if training.lacking or len(training.outstanding) > len(state.running_attempts):
        return []  # Some task is not running: there is no need to look at each of them.
    if not training.is_dispatched(dispatch_limit(state)):
        return []
    running = {ref.number: attempts for ref, attempts in state.running_attempts.items() if ref.purpose is Purpose.TRAIN}
    if not training.outstanding <= running.keys():
        return []
    idle = _idle_workers(state)
    single = [
        (next(iter(attempts.values())).since_s, task)
        for task, attempts in running.items()
        if len(attempts) == 1 and task in training.outstanding and task not in training.speculated
    ]
    if not idle or not single:
        return []
    slow_after_s = policy.slow_after_s(training.statistics.mean_task_s)
    slow = [task for since_s, task in sorted(single) if now_s >= since_s + slow_after_s][:idle]
    if slow:
        return [_second_attempts(state, slow)]
    return _timer(state, min(single)[0] + slow_after_s, "the oldest running task will count as slow then")


def _timer(state: State, due_s: float, reason: str) -> Decisions:
    if state.timers.get(SPECULATION) == due_s:
        return []
    return [(SetTimer(timer=SPECULATION, due_s=due_s), reason)]


def _awaited_tasks(state: State, training: Training) -> list[int]:
    """Synchronous training: tasks that the workers of the present cohort wait for, each run by one worker."""
    if not training.waiting or (rounds := state.job.rounds) is None:
        return []
    first = training.complete.first_missing(0)
    if first >= training.plan.tasks:
        return []
    cohort = rounds.cohort(TaskId(first))
    waiting = {worker for worker, start in training.waiting.items() if start == cohort.start}
    awaited = []
    for task in cohort if waiting else ():
        attempts = state.running_attempts.get(TaskRef(purpose=Purpose.TRAIN, number=task), {})
        is_first = task in training.outstanding and task not in training.speculated
        if is_first and len(attempts) == 1 and not waiting & attempts.keys():
            awaited.append(task)
    return awaited


def _idle_workers(state: State) -> int:
    busy = {attempt.worker for attempts in state.running_attempts.values() for attempt in attempts.values()}
    return sum(1 for pod in state.running(Service.WORKER) if pod.name not in busy)


def _second_attempts(state: State, tasks: Sequence[int]) -> tuple[Command, str]:
    refs = [TaskRef(purpose=Purpose.TRAIN, number=task) for task in tasks]
    slow = {next(iter(state.running_attempts[ref].values())).worker for ref in refs}
    command = Dispatch(
        purpose=Purpose.TRAIN,
        dispatch=state.dispatches + 1,
        tasks=tuple((task, task + 1) for task in tasks),
        again=True,
    )
    return command, f"second attempts of tasks that are slow on {', '.join(sorted(slow))}"
