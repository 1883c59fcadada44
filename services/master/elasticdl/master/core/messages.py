"""From a dispatch decision to the messages on the task queue."""

from __future__ import annotations

from elasticdl.master.core.evaluating import merge_states
from elasticdl.master.core.state import State
from elasticdl.shared.commands import Dispatch
from elasticdl.shared.names import Purpose
from elasticdl.shared.tasks import MetricStates, TaskMessage, TaskRef


def messages(state: State, dispatch: Dispatch) -> list[TaskMessage]:
    """The messages of one dispatch; asked again, it gives the same ones."""
    states: MetricStates = {}
    if dispatch.purpose is Purpose.MERGE:
        states = merge_states(state, dispatch.label, dispatch.evaluation)
    return [
        TaskMessage(
            task=TaskRef(purpose=dispatch.purpose, number=number),
            dispatch=dispatch.dispatch,
            term=state.term,
            evaluation=dispatch.evaluation,
            label=dispatch.label,
            states=states,
            run=state.run,
        )
        for start, end in dispatch.tasks
        for number in range(start, end)
    ]
