"""Merging: a worker computes metrics from summed metric states, or runs the callbacks between two epochs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elasticdl.master.core.callbacks.apply import on_callbacks_result
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation.best import on_results
from elasticdl.master.core.evaluation.state import EvaluationPhase, Merge
from elasticdl.master.core.state import State
from elasticdl.master.core.training.statistics import sum_states, to_bytes
from elasticdl.shared.job.tasks import CALLBACKS, LAST_CALLBACKS, MetricStates
from elasticdl.shared.messages.commands import Command, Dispatch
from elasticdl.shared.messages.events import TaskFinished
from elasticdl.shared.names import Purpose

_NO_INSTANCES: Mapping[str, str] = MappingProxyType({})


def decide_epoch_merges(state: State) -> Decisions:
    """Merge the training metrics of complete epochs, if the model has metrics."""
    training = state.training
    if training is None:
        return []
    asked = {merge.subject for merge in state.merges.values() if merge.label == "epoch"}
    return [
        merge_command(state, "epoch", epoch, offset)
        for offset, epoch in enumerate(
            epoch
            for epoch in sorted(training.epochs)
            if epoch not in asked and training.epochs[epoch].states and training.has_epoch(epoch)
        )
    ]


def merge_command(
    state: State, label: str, subject: int, offset: int = 0, instances: Mapping[str, str] = _NO_INSTANCES
) -> tuple[Command, str]:
    """The dispatch of one merge task, and its reason.

    Args:
        state: the job's state.
        label: ``evaluation``, ``epoch``, or one for callbacks.
        subject: number of the evaluation or epoch, or of the callbacks' task.
        offset: how many merges the same decision dispatches before this one.
        instances: callbacks: ps -> the instance that has the model at the end of the epoch.
    """
    number = max([state.number_floor, *state.merges]) + 1 + offset
    command = Dispatch(
        purpose=Purpose.MERGE,
        dispatch=state.dispatches + 1 + offset,
        tasks=((number, number + 1),),
        evaluation=subject,
        label=label,
        audited=instances,
    )
    if label in (CALLBACKS, LAST_CALLBACKS):
        return command, "callbacks at the end of an epoch" if subject % 2 == 0 else "callbacks at the start of training"
    return command, f"every part of {label} {subject} is there"


def states_to_merge(state: State, label: str, subject: int) -> MetricStates:
    """The summed states that a merge task carries."""
    if label == "epoch":
        totals = state.training.epochs.get(subject) if state.training else None
        return to_bytes(totals.states) if totals else {}
    evaluation = next((e for e in state.evaluations if e.number == subject), None) if label == "evaluation" else None
    return sum_states(evaluation.states) if evaluation else {}


def apply_merge_dispatch(state: State, command: Dispatch) -> None:
    """Apply the dispatch of merge tasks."""
    for start, end in command.tasks:
        for number in range(start, end):
            state.merges[number] = Merge(label=command.label, subject=command.evaluation)
    evaluation = state.evaluation
    if evaluation and command.label == "evaluation" and evaluation.number == command.evaluation:
        evaluation.phase = EvaluationPhase.MERGING


def on_merge_result(state: State, event: TaskFinished, time_s: float) -> None:
    """Apply the metrics that a merge task has computed."""
    merge = state.merges.get(event.task.number)
    if merge is None or merge.done:
        return
    merge.done = True
    if merge.label in (CALLBACKS, LAST_CALLBACKS):
        on_callbacks_result(state, merge.subject, event)
        return
    if merge.label == "epoch":
        if state.training and merge.subject in state.training.epochs:
            totals = state.training.epochs[merge.subject]
            totals.results = dict(event.results)
            totals.merged = True
            totals.states = {}
        return
    evaluation = state.evaluation
    if evaluation and evaluation.number == merge.subject:
        evaluation.results = dict(event.results)
        evaluation.ended_s = time_s
        evaluation.states = {}
        on_results(state, evaluation)
        if evaluation.phase is EvaluationPhase.DONE:
            state.close_pins(evaluation)
