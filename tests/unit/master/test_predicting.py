"""Prediction jobs in the master's core: which files count, what a resume keeps, and when the files are published."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.spec import PredictionSpec
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import Purpose

DATA = plan(records=150, epochs=1)
"""Three tasks of 50 records."""


def prediction_job(checksum: int = 21) -> Driver:
    """A job that only predicts; its tasks are dispatched."""
    spec = job_spec(
        replace(DATA, sources=()),
        kind=JobKind.PREDICT,
        checksum=checksum,
        validation=DATA,
        validation_data=job_spec().data,
        output="file:///predictions",
        prediction=PredictionSpec(),
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    return driver


def predict(driver: Driver, task: int, file: str, records: int = 50) -> None:
    """Finish an attempt that has written a file."""
    driver.finish(task, purpose=Purpose.PREDICT, records=records, checksum=7, file=file)


def published(driver: Driver) -> list[tuple[str, ...]]:
    """The files of each order to publish, as its message names them."""
    orders = [each for each in driver.take(commands.Dispatch) if each.purpose is Purpose.EXPORT]
    return [message.files for each in orders for message in task_messages(driver.state, each, 1)]


def test_the_first_file_of_each_task_is_published_and_the_job_succeeds() -> None:
    driver = prediction_job()
    assert driver.dispatched(Purpose.PREDICT) == [0, 1, 2]
    for task, file in ((2, "c"), (0, "a"), (0, "late"), (2, "late"), (1, "b")):
        assert published(driver) == []
        predict(driver, task, file)
    assert published(driver) == [("a", "b", "c")]
    driver.finish(0, purpose=Purpose.EXPORT)
    assert driver.is_in(JobState.SUCCEEDED)
    assert (driver.state.prediction.records, driver.state.evaluations) == (150, [])
    driver.check_replay()


def test_records_that_differ_from_the_index_fail_the_job_before_anything_is_published() -> None:
    driver = prediction_job()
    for task in driver.dispatched(Purpose.PREDICT):
        predict(driver, task, "x", records=49)
    assert published(driver) == []
    assert driver.state.failure is not None
    assert "147 records with checksum 0000000000000015 were predicted, the data has 150" in driver.state.failure.message


def test_a_resume_keeps_the_finished_tasks() -> None:
    driver = prediction_job()
    assert driver.dispatched(Purpose.PREDICT) == [0, 1, 2]
    predict(driver, 1, "b")
    driver.feed_from_launcher(events.JobResumed(reason="resumed after stopped"))
    driver.start_all(initialised=True)
    assert driver.dispatched(Purpose.PREDICT) == [0, 2]
    for task, file in ((0, "a"), (2, "c")):
        predict(driver, task, file)
    assert published(driver) == [("a", "b", "c")]
    driver.check_replay()


def test_a_ps_that_dies_costs_no_finished_task_and_publishing_starts_again() -> None:
    driver = prediction_job()
    predict(driver, 1, "b")
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_all(initialised=True)
    assert driver.dispatched(Purpose.PREDICT) == [0, 1, 2]
    for task, file in ((0, "a"), (2, "c")):
        predict(driver, task, file)
    assert published(driver) == [("a", "b", "c")]
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_all(initialised=True)
    assert published(driver) == [("a", "b", "c")]
    driver.check_replay()
