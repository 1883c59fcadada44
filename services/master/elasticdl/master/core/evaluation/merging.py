"""Merge tasks: a worker computes metrics from summed metric states, or runs the callbacks between two epochs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elasticdl.master.core.callbacks.apply import on_callbacks_result
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.best import on_results
from elasticdl.master.core.evaluation.metric_states import (
    discard_states,
    drop_evaluated_states,
    on_evaluation_sum,
)
from elasticdl.master.core.evaluation.state import EvaluationPhase, Merge
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import (
    CALLBACKS,
    EPOCH_METRICS,
    EVALUATION_METRICS,
    EVALUATION_SUM,
    LAST_CALLBACKS,
)
from elasticdl.shared.messages.commands import Command, Dispatch
from elasticdl.shared.messages.events import TaskFinished, TaskReturned
from elasticdl.shared.names import Purpose

_NO_INSTANCES: Mapping[str, str] = MappingProxyType({})


def decide_epoch_merges(state: State) -> Decisions:
    """Compute the training metrics of the next complete epoch.

    One after the other: a worker that reads the sums of an epoch has the ps drop those of earlier ones. A ps that has
    lost batches reports its ledgers before it serves, so the epoch of a task that was returned for that counts as
    incomplete until they are trained again.
    """
    training = state.training
    if training is None or training.statistics.merged_epochs >= training.epochs_complete:
        return []
    if any(merge.label == EPOCH_METRICS and merge.is_awaited for merge in state.merges.values()):
        return []
    return [merge_command(state, EPOCH_METRICS, training.statistics.merged_epochs)]


def merge_command(
    state: State,
    label: str,
    subject: int,
    offset: int = 0,
    instances: Mapping[str, str] = _NO_INSTANCES,
    count: int = 1,
) -> tuple[Command, str]:
    """The dispatch of a merge task, or of several alike, and its reason.

    Args:
        offset: how many merges the same decision dispatches before this one.
        instances: callbacks: ps -> the instance that has the model at the end of the epoch.
    """
    number = max([state.number_floor, state.last_forgotten_merge, *state.merges]) + 1 + offset
    command = Dispatch(
        purpose=Purpose.MERGE,
        dispatch=state.dispatches + 1 + offset,
        tasks=((number, number + count),),
        evaluation=subject,
        label=label,
        audited=instances,
    )
    if label in (CALLBACKS, LAST_CALLBACKS):
        return command, "callbacks at the end of an epoch" if subject % 2 == 0 else "callbacks at the start of training"
    if label == EVALUATION_SUM:
        return command, f"many metric states of evaluation {subject} are stored"
    if label == EPOCH_METRICS:
        return command, f"every batch of epoch {subject} is absorbed"
    return command, f"every part of {label} {subject} is there"


def apply_merge_dispatch(state: State, command: Dispatch) -> None:
    """Apply the dispatch of merge tasks."""
    for start, end in command.tasks:
        for number in range(start, end):
            state.merges[number] = Merge(label=command.label, subject=command.evaluation)
            if command.label == EVALUATION_SUM and state.evaluation:
                state.evaluation.tasks.stored.begin_sum(number)
    evaluation = state.evaluation
    if evaluation and command.label == EVALUATION_METRICS and evaluation.number == command.evaluation:
        evaluation.phase = EvaluationPhase.MERGING


def end_evaluation_merges(state: State, evaluation: int) -> None:
    """An evaluation is abandoned: the results of its merge tasks are not needed any more."""
    for number, merge in list(state.merges.items()):
        if merge.subject != evaluation:
            continue
        if merge.label in (EVALUATION_SUM, EVALUATION_METRICS):
            _forget(state, number)


def _forget(state: State, number: int) -> None:
    """A job may have any number of evaluations, and thousands of sums for one of them: only the last number is kept."""
    del state.merges[number]
    state.last_forgotten_merge = max(state.last_forgotten_merge, number)


def on_merge_returned(state: State, event: TaskReturned) -> None:
    """Apply that a worker has returned a merge task. The metrics of an epoch need another task then."""
    merge = state.merges.get(event.task.number)
    if merge is not None and merge.label == EPOCH_METRICS:
        merge.returned = True


def on_merge_result(state: State, event: TaskFinished, time_s: float) -> None:
    """Apply the metrics that a merge task has computed."""
    merge = state.merges.get(event.task.number)
    if merge is None or merge.done:
        discard_states(state, event.stored_states)
        return
    merge.done = True
    if merge.label in (EVALUATION_SUM, EVALUATION_METRICS):
        _forget(state, event.task.number)
    if merge.label == EVALUATION_SUM:
        on_evaluation_sum(state, merge.subject, event)
        return
    if merge.label in (CALLBACKS, LAST_CALLBACKS):
        on_callbacks_result(state, merge.subject, event)
        return
    if merge.label == EPOCH_METRICS:
        training = state.training
        if training and merge.subject >= training.statistics.merged_epochs:
            training.statistics.merge(merge.subject, event, time_s, training.plan)
        return
    evaluation = state.evaluation
    if merge.label == EVALUATION_METRICS and evaluation and evaluation.number == merge.subject:
        evaluation.results = dict(event.results)
        evaluation.ended_s = time_s
        drop_evaluated_states(state, evaluation)
        on_results(state, evaluation)
        if evaluation.phase is EvaluationPhase.DONE:
            state.close_pins(evaluation)
