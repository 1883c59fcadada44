"""From a dispatch decision to the messages on the task queue."""

from __future__ import annotations

from elasticdl.master.core.evaluation import merge_states
from elasticdl.master.core.state import State
from elasticdl.shared.job.tasks import MetricStates, TaskMessage, TaskRef
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.names import Purpose


def task_messages(state: State, dispatch: Dispatch, term: int) -> list[TaskMessage]:
    """The messages of one dispatch; a successor that asks again gets the same ones.

    Args:
        state: everything that is known.
        dispatch: what was decided.
        term: the term that decided it, whoever runs it now.
    """
    states: MetricStates = {}
    if dispatch.purpose is Purpose.MERGE:
        states = merge_states(state, dispatch.label, dispatch.evaluation)
    return [
        TaskMessage(
            task=TaskRef(purpose=dispatch.purpose, number=number),
            dispatch=dispatch.dispatch,
            term=term,
            evaluation=dispatch.evaluation,
            label=dispatch.label,
            states=states,
            run=state.run,
        )
        for start, end in dispatch.tasks
        for number in range(start, end)
        if not (dispatch.purpose is Purpose.MERGE and state.merges[number].done)
    ]
