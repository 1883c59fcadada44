"""Mutations of prediction jobs: which file of a task counts, and how files are published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.schedule import prediction_schedule

from elasticdl.master.core.closing import decide, steps
from elasticdl.master.core.prediction import apply
from elasticdl.master.core.task_window import TaskWindow
from elasticdl.master.core.training import apply as tasks
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.storage import ObjectNotFoundError, join
from elasticdl.worker.execution.predictor import Predictor
from elasticdl.worker.predictions.output import SUCCESS, PredictionOutput


@mutation(
    "the file of a task's first finished attempt counts, and no other",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-worker-is-killed-between-its-predictions-and-their-acknowledgement",
)
def predicted_tasks_count_once() -> Iterator[None]:
    original = apply.on_prediction

    def on_prediction(state: Any, event: Any) -> None:
        state.prediction.files.pop(event.task.number, None)
        original(state, event)

    with replaced(tasks, "on_prediction", on_prediction):
        yield


@mutation(
    "an attempt at a task keeps no predictions of an earlier attempt",
    protects=Protects.EXACTLY_ONCE,
    schedule=prediction_schedule,
)
def attempts_begin_without_predictions() -> Iterator[None]:
    original = Predictor.predict

    def predict(self: Any, command: Any) -> Any:
        former = list(self._predicted)
        event = original(self, command)
        if command.ref.batch == 0:
            self._predicted = [*former, *self._predicted]
        return event

    with replaced(Predictor, "predict", predict):
        yield


@mutation(
    "files are published when every task has one",
    protects=Protects.EXACTLY_ONCE,
    schedule=prediction_schedule,
)
def publishing_waits_for_every_task() -> Iterator[None]:
    def predict_records(state: Any) -> Any:
        return steps.predict_records(state) or (None if state.prediction.files else [])

    early = decide.JobPolicy(closing_steps=(predict_records, steps.publish_predictions), success="")
    with replaced(decide, "POLICIES", {**decide.POLICIES, JobKind.PREDICT: early}):
        yield


@mutation(
    "the folder is marked as complete when every file has its name",
    protects=Protects.EXACTLY_ONCE,
    schedule=prediction_schedule,
)
def the_folder_is_complete_last() -> Iterator[None]:
    original = PredictionOutput.publish

    def publish(self: Any, files: Any) -> Iterator[None]:
        self.store.write(join(self.folder, SUCCESS), b"")
        yield from original(self, files)

    with replaced(PredictionOutput, "publish", publish):
        yield


@mutation(
    "an attempt to publish continues where an earlier one was interrupted",
    protects=Protects.LIVENESS,
    schedule=prediction_schedule,
)
def publishing_continues() -> Iterator[None]:
    def rename(self: Any, source: str, target: str) -> None:
        try:
            self.store.move(source, target)
        except ObjectNotFoundError as error:
            raise PermanentError(f"{source} is gone") from error

    with replaced(PredictionOutput, "_rename", rename):
        yield


@mutation(
    "a resume dispatches the tasks that have no predictions again",
    protects=Protects.LIVENESS,
    schedule=prediction_schedule,
)
def tasks_without_predictions_are_dispatched_again() -> Iterator[None]:
    with replaced(TaskWindow, "on_queue_purged", lambda self: None):
        yield
