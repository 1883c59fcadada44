"""The metric states of evaluations: what a merge task adds up, and what can be removed."""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.state import Evaluation
from elasticdl.master.core.evaluation.task_results import TaskResults
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import (
    EVALUATION_METRICS,
    EVALUATION_SUM,
    MetricStates,
    states_of_evaluation,
)
from elasticdl.shared.messages.commands import RemoveStates
from elasticdl.shared.messages.events import TaskFinished


def states_to_merge(state: State, label: str, subject: int, task: int) -> tuple[MetricStates, tuple[int, ...]]:
    """The summed small states that a merge task carries, and the numbers of the stored ones that it adds up."""
    evaluation = state.evaluation
    if label not in (EVALUATION_METRICS, EVALUATION_SUM) or evaluation is None or evaluation.number != subject:
        return {}, ()
    results = evaluation.tasks
    return ({}, results.stored.to_sum(task)) if label == EVALUATION_SUM else (results.states, results.stored.numbers)


def drop_evaluated_states(state: State, evaluation: Evaluation) -> None:
    """An evaluation has ended: its states are not needed any more."""
    results, evaluation.tasks = evaluation.tasks, TaskResults()
    if results.stored and state.training:
        state.training.statistics.unneeded.add_group(states_of_evaluation(evaluation.number))


def discard_states(state: State, numbers: Iterable[int]) -> None:
    """A result does not count, and so its stored states are not needed."""
    if state.training:
        state.training.statistics.unneeded.add(numbers)


def on_evaluation_sum(state: State, evaluation: int, event: TaskFinished) -> None:
    """Apply that a worker has stored the sum of some states of an evaluation."""
    present = state.evaluation
    if present and present.number == evaluation:
        discard_states(state, present.tasks.stored.end_sum(event.task.number, event.stored_states))


def decide_removal(state: State) -> Decisions:
    """Remove the stored states that nothing needs any more."""
    if state.training is None or not (unneeded := state.training.statistics.unneeded):
        return []
    command = RemoveStates(groups=tuple(unneeded.groups), numbers=tuple(unneeded.numbers.ranges()))
    return [(command, "these metric states are not needed any more")]


def apply_removal(state: State, command: RemoveStates) -> None:
    """Apply the decision to remove states."""
    if state.training:
        state.training.statistics.unneeded.remove(command.groups, command.numbers)


def apply_failed_removal(state: State, command: RemoveStates) -> None:
    """Apply that the broker did not remove them: it is decided again."""
    if state.training:
        for group in command.groups:
            state.training.statistics.unneeded.add_group(group)
        for start, end in command.numbers:
            state.training.statistics.unneeded.numbers.add_range(start, end)
