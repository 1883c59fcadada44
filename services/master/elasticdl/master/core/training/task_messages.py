"""The messages that a dispatch puts on the task queue."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.master.core.evaluation.merging import states_to_merge
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import MetricStates, TaskMessage, TaskRef
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.names import Purpose


def task_messages(state: State, dispatch: Dispatch, term: int) -> Iterator[TaskMessage]:
    """The messages of one dispatch, made one by one, as there may be thousands.

    A successor that publishes it again gets the same ones.

    Args:
        state: the job's state.
        dispatch: the command.
        term: the term of the master that decided it, whichever master runs it.
    """
    run = state.run
    states: MetricStates = {}
    if dispatch.purpose is Purpose.MERGE:
        states = states_to_merge(state, dispatch.label, dispatch.evaluation)
    return (
        TaskMessage(
            task=TaskRef(purpose=dispatch.purpose, number=number),
            dispatch=dispatch.dispatch,
            term=term,
            evaluation=dispatch.evaluation,
            label=dispatch.label,
            states=states,
            run=run,
            audited=dispatch.audited,
        )
        for start, end in dispatch.tasks
        for number in range(start, end)
        if not (dispatch.purpose is Purpose.MERGE and state.merges[number].done)
    )
