"""The messages that a dispatch puts on the task queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elasticdl.master.core.callbacks.decide import results_of_epoch
from elasticdl.master.core.evaluation.metric_states import states_to_merge
from elasticdl.master.core.state import State
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import CALLBACKS, EPOCH_METRICS, LAST_CALLBACKS, MetricStates, TaskMessage, TaskRef
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.names import Purpose, TaskId


def task_messages(state: State, dispatch: Dispatch, term: int) -> Iterator[TaskMessage]:
    """The messages of one dispatch, made one by one, as there may be thousands.

    A successor that publishes it again gets the same ones.

    Args:
        term: the term of the master that decided it, whichever master runs it.
    """
    run = state.run
    logs: Mapping[str, float] = {}
    files: tuple[str, ...] = ()
    if dispatch.purpose is Purpose.EXPORT and state.job.prediction:
        files = tuple(name for _, name in sorted(state.prediction.files.items()))
    snapshots: tuple[str, ...] = ()
    if dispatch.purpose is Purpose.EXPORT and dispatch.audited:
        tables = [ps for ps in sorted(state.closing.manifests) if ps in state.placement.holder_names]
        snapshots = tuple(state.closing.manifests[ps] for ps in tables)
    if dispatch.label in (CALLBACKS, LAST_CALLBACKS):
        logs = results_of_epoch(state, dispatch.evaluation)
    return (
        TaskMessage(
            task=TaskRef(purpose=dispatch.purpose, number=number),
            dispatch=dispatch.dispatch,
            term=term,
            evaluation=dispatch.evaluation,
            label=dispatch.label,
            states=states,
            stored_states=stored,
            run=run,
            audited=dispatch.audited,
            files=files,
            snapshots=snapshots,
            logs=logs,
            skipped=_skipped(state, dispatch),
            learning_rate=_rate(state, number) if dispatch.purpose is Purpose.TRAIN else None,
        )
        for start, end in dispatch.tasks
        for number in range(start, end)
        if not (dispatch.purpose is Purpose.MERGE and _is_merged(state, number))
        for states, stored in (_states(state, dispatch, number),)
    )


def _states(state: State, dispatch: Dispatch, number: int) -> tuple[MetricStates, tuple[int, ...]]:
    if dispatch.purpose is not Purpose.MERGE:
        return {}, ()
    return states_to_merge(state, dispatch.label, dispatch.evaluation, number)


def _is_merged(state: State, number: int) -> bool:
    merge = state.merges.get(number)
    return merge is None or merge.done


def _skipped(state: State, dispatch: Dispatch) -> tuple[int, ...]:
    """The tasks of an epoch that a resume has skipped."""
    if dispatch.label != EPOCH_METRICS or state.training is None or not state.training.skipped:
        return ()
    size = state.plan.tasks_per_epoch
    epoch = RangeSet([(dispatch.evaluation * size, (dispatch.evaluation + 1) * size)])
    return tuple(state.training.skipped.intersection(epoch))


def _rate(state: State, task: int) -> float | None:
    rates = state.callbacks.rates
    return state.callbacks.rate_of(state.plan.epoch(TaskId(task))) if rates else None
