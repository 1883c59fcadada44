"""How results change the state of a prediction job."""

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
        state.check_records("prediction", "predicted", prediction.records, prediction.checksum)
