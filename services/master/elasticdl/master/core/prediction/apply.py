"""How results and dispatches change the state of a prediction job."""

from __future__ import annotations

from elasticdl.master.core.state import State
from elasticdl.shared.messages.events import TaskFinished


def on_prediction(state: State, event: TaskFinished) -> None:
    """Apply the result of a prediction task: the file of the first finished attempt is the one that counts."""
    prediction = state.prediction
    if event.task.number in prediction.files:
        return
    prediction.files[event.task.number] = event.file
    prediction.window.on_result(event.task.number)
    prediction.records += event.records
    prediction.checksum = (prediction.checksum + event.checksum) % (1 << 64)
    if len(prediction.files) == state.evaluation_tasks:
        _audit(state)


def _audit(state: State) -> None:
    """Fail a job whose files do not hold the predictions of exactly the records of the data's index."""
    prediction = state.prediction
    expected = state.job.validation.records if state.job.validation else 0
    if (prediction.records, prediction.checksum) != (expected, state.job.checksum):
        state.fail(
            f"The audit found that the prediction was not exact: {prediction.records} records with checksum "
            f"{prediction.checksum:016x} were predicted, the data has {expected} with {state.job.checksum:016x}."
        )
