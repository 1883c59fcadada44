"""Backup attempts: at the end of a job, idle workers help with what somebody else has been slow to finish.

The ledger makes it harmless: whatever two workers push, a batch is absorbed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import SPECULATION
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import Command, Dispatch, JobState, SetTimer
from elasticdl.shared.names import Purpose, Service


class SpeculationPolicy(Protocol):
    """When a task counts as slow."""

    def patience_s(self, task_s: float) -> float:
        """Seconds that a task may be in one worker's hands before another one gets it, too.

        Args:
            task_s: mean seconds that a task took so far.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleOfMean:
    """A task is slow after ``factor`` times the mean, and never before ``least_s``."""

    factor: float = 3.0
    least_s: float = 3.0

    def patience_s(self, task_s: float) -> float:
        """See ``SpeculationPolicy``."""
        return max(self.factor * task_s, self.least_s)


DEFAULT = MultipleOfMean()


def decide_speculation(state: State, now_s: float, policy: SpeculationPolicy = DEFAULT) -> Decisions:
    """Backup attempts for slow tasks, if there is nothing else to do for somebody."""
    training = state.training
    if training is None or state.job_state is not JobState.TRAINING or not training.is_dispatched:
        return []
    held = {ref.number: holders for ref, holders in state.holdings.items() if ref.purpose is Purpose.TRAIN}
    if training.lacking or not training.outstanding <= held.keys():
        return []
    idle = _idle_workers(state)
    single = [
        (next(iter(holders.values())).since_s, task)
        for task, holders in held.items()
        if len(holders) == 1 and task in training.outstanding and task not in training.speculated
    ]
    if not idle or not single:
        return []
    patience_s = policy.patience_s(training.mean_task_s)
    slow = [task for since_s, task in sorted(single) if now_s >= since_s + patience_s][:idle]
    if slow:
        return [_again(state, slow)]
    due_s = min(single)[0] + patience_s
    if state.timers.get(SPECULATION) == due_s:
        return []
    return [(SetTimer(timer=SPECULATION, due_s=due_s), "the oldest task in hand would count as slow then")]


def _idle_workers(state: State) -> int:
    busy = {holding.worker for holders in state.holdings.values() for holding in holders.values()}
    return sum(1 for pod in state.running(Service.WORKER) if pod.name not in busy)


def _again(state: State, tasks: Sequence[int]) -> tuple[Command, str]:
    holders = [next(iter(state.holdings[TaskRef(purpose=Purpose.TRAIN, number=task)].values())) for task in tasks]
    command = Dispatch(
        purpose=Purpose.TRAIN,
        dispatch=state.dispatches + 1,
        tasks=tuple((task, task + 1) for task in tasks),
        again=True,
    )
    return command, f"slow in the hands of {', '.join(sorted({holder.worker for holder in holders}))}"
