"""The best model and early stopping in the master's core."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, close, job_spec, plan, whole
from tests.unit.master.test_evaluating import VALIDATION, pin

from elasticdl.master.core.evaluation.best import is_better
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.spec import BestModel
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import Purpose

EPOCHS = 6
LOSS = BestModel(metric="loss", save=True)


def driver_of(best: BestModel) -> Driver:
    """A job of six epochs of 20 tasks each; every process runs."""
    spec = job_spec(
        plan(epochs=EPOCHS),
        validation=VALIDATION,
        validation_data=job_spec().data,
        evaluate_epochs=True,
        epoch_checksum=5,
        checksum=5 * EPOCHS,
        output="memory://output",
        best=best,
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    return driver


def train_epoch(driver: Driver, loss: float) -> list[int]:
    """Train what is dispatched, and evaluate the end of the epoch; returns the evaluations that are to be saved."""
    for task in driver.dispatched():
        driver.finish(task)
    return evaluate(driver, loss)


def evaluate(driver: Driver, loss: float, step: int = 17) -> list[int]:
    pin(driver, step)
    for number in driver.dispatched(Purpose.EVALUATE):
        driver.finish(number, purpose=Purpose.EVALUATE, states={"loss": (b"\0" * 16,)})
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": loss})
    return driver.dispatched(Purpose.EXPORT)


def save(driver: Driver, number: int) -> None:
    driver.finish(number, purpose=Purpose.EXPORT)


def test_the_best_evaluated_model_is_saved_and_exported() -> None:
    driver = driver_of(LOSS)
    for loss, saved in ((3.0, [1]), (1.0, [2]), (2.0, []), (1.5, []), (1.0, [])):
        assert train_epoch(driver, loss) == saved
        for number in saved:
            assert driver.take(commands.ClosePin) == [], "the pin is needed until the model is saved"
            save(driver, number)
        assert len(driver.take(commands.ClosePin)) == 1
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan, checksum=5 * EPOCHS))
    assert evaluate(driver, 1.5) == [0]
    decided = [command for _, each in driver.state.pending_commands for command in each.commands]
    (export,) = [each for each in decided if isinstance(each, commands.Dispatch) and each.tasks == ((0, 1),)][-1:]
    assert (export.purpose, export.evaluation) == (Purpose.EXPORT, 2)
    driver.check_replay()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_finite_fails_the_job(loss: float) -> None:
    driver = driver_of(LOSS)
    assert train_epoch(driver, loss) == []
    assert f"the validation loss is {loss} at step 17 (evaluation 1)" in driver.failure()
    assert driver.is_in(JobState.STOPPING)
    driver.check_replay()


def test_a_result_that_comes_again_while_the_evaluated_model_is_saved_does_not_count() -> None:
    driver = driver_of(LOSS)
    for task in driver.dispatched():
        driver.finish(task)
    pin(driver)
    tasks = driver.dispatched(Purpose.EVALUATE)
    for number in tasks:
        driver.finish(number, purpose=Purpose.EVALUATE, records=50, checksum=7)
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": 2.0})
    evaluation = driver.state.evaluations[-1]
    assert evaluation.phase is EvaluationPhase.SAVING
    driver.take(commands.RemoveStates)
    driver.finish(tasks[0], purpose=Purpose.EVALUATE, records=50, checksum=7, stored_states=(9,))
    assert (evaluation.records, evaluation.checksum) == (50 * len(tasks), 7 * len(tasks))
    assert [command.numbers for command in driver.take(commands.RemoveStates)] == [((9, 10),)]
    driver.check_replay()


def test_without_a_better_value_for_as_many_epochs_as_the_patience_training_ends_there() -> None:
    driver = driver_of(replace(LOSS, save=False, patience=2))
    assert train_epoch(driver, 1.0) == []
    train_epoch(driver, 2.0)
    for task in driver.dispatched():
        driver.finish(task)
    pin(driver)
    assert driver.dispatched() == [], "the next epoch waits for a result that decides whether there will be one"
    evaluate(driver, 1.0)
    assert driver.take(commands.EndTraining) == [commands.EndTraining(epochs=3)]
    assert driver.is_in(JobState.CLOSING)
    (order,) = [each for each in driver.commands if isinstance(each, commands.TakeSnapshot)]
    assert (order.flush, order.tasks) == (True, 60)
    close(driver, whole(driver.state.plan, checksum=15))
    assert driver.state.closing.audit is not None
    assert driver.state.closing.audit.exact
    driver.check_replay()


@pytest.mark.parametrize("is_restored", [False, True])
def test_after_early_stopping_the_last_epoch_is_evaluated_once(is_restored: bool) -> None:
    driver = driver_of(replace(LOSS, save=False, patience=1))
    train_epoch(driver, 1.0)
    for task in driver.dispatched():
        driver.finish(task)
    evaluate(driver, 2.0, step=200)
    assert driver.take(commands.EndTraining) == [commands.EndTraining(epochs=2)]
    ledger = whole(driver.state.plan, checksum=10)
    assert ledger.step == 200
    if is_restored:
        driver.take(commands.TakeSnapshot)
        driver.exit_pod("ps-0", ExitCause.PREEMPTED)
        driver.start_pod("ps-0", {"g": ledger}, initialised=True)
    driver.take(commands.OpenPin)
    close(driver, ledger)
    assert len(driver.take(commands.OpenPin)) == is_restored, "the evaluated model is not certain to be the final one"
    assert driver.state.evaluations[1].final == (not is_restored)
    driver.check_replay()


def test_training_goes_on_if_the_last_try_is_better() -> None:
    driver = driver_of(replace(LOSS, save=False, patience=1))
    train_epoch(driver, 2.0)
    train_epoch(driver, 1.0)
    assert driver.dispatched() == list(range(40, 60))
    driver.check_replay()


def test_a_model_that_is_lost_before_it_is_saved_is_not_the_best_one() -> None:
    driver = driver_of(LOSS)
    assert train_epoch(driver, 3.0) == [1]
    save(driver, 1)
    assert train_epoch(driver, 1.0) == [2]
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 40),))})
    save(driver, 2)
    assert (driver.state.best.saved, driver.state.best.value) == (1, 3.0)
    assert driver.state.evaluations[1].results == {"loss": 1.0}
    assert train_epoch(driver, 2.0) == [3]
    driver.check_replay()


@pytest.mark.parametrize(
    ("spec", "value", "best", "expected"),
    [
        (LOSS, 1.0, None, True),
        (LOSS, math.nan, None, False),
        (LOSS, 1.0, 1.0, False),
        (replace(LOSS, min_delta=0.1), 0.95, 1.0, False),
        (replace(LOSS, min_delta=0.1), 0.85, 1.0, True),
        (replace(LOSS, is_max=True), 1.1, 1.0, True),
        (replace(LOSS, is_max=True, min_delta=0.1), 1.05, 1.0, False),
    ],
)
def test_what_is_better(spec: BestModel, value: float, best: float | None, expected: bool) -> None:
    assert is_better(spec, value, best) is expected
