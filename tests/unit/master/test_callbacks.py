"""Callbacks in the master's core: when their hooks run, and what follows from the results."""

from __future__ import annotations

from tests.unit.master.driver import Driver, close, job_spec, plan, whole
from tests.unit.master.test_best_model import evaluate
from tests.unit.master.test_evaluating import VALIDATION

from elasticdl.master.core import task_messages
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.tasks import CALLBACKS, LAST_CALLBACKS, TaskRef
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind, JobResumed, TaskFailed
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service

EPOCHS = 3
EPOCH = list(range(20))


def driver_of(*, validation: bool = False) -> Driver:
    """A job of three epochs of 20 tasks each, whose model file has callbacks; every process runs."""
    spec = job_spec(
        plan(epochs=EPOCHS),
        epoch_checksum=5,
        checksum=5 * EPOCHS,
        callbacks=("EarlyStopping",),
        validation=VALIDATION if validation else None,
        validation_data=job_spec().data if validation else None,
        evaluate_epochs=validation,
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    return driver


def driver_after_evaluated_epoch() -> tuple[Driver, dict[PodName, Incarnation]]:
    """A job whose first epoch is trained and evaluated, and the instances of the ps with the evaluated model."""
    driver = driver_of(validation=True)
    hooks_ran(driver)
    train(driver, EPOCH)
    evaluate(driver, 3.0)
    return driver, driver.state.evaluations[-1].incarnations


def due(driver: Driver) -> list[tuple[int, str, dict[str, float]]]:
    """Number, label and logs of the callbacks' tasks that were dispatched since the last call."""
    merges = [each for each in driver.take(commands.Dispatch) if each.purpose is Purpose.MERGE]
    messages = [message for each in merges for message in task_messages(driver.state, each, 1)]
    return [(message.evaluation, message.label, dict(message.logs)) for message in messages]


def hooks_ran(driver: Driver, note: str = "", **results: float) -> None:
    """A worker has run the hooks that are due."""
    (task,) = (number for number, merge in driver.state.merges.items() if not merge.done)
    driver.finish(task, purpose=Purpose.MERGE, results=results, note=note)


def train(driver: Driver, tasks: list[int]) -> None:
    assert driver.dispatched() == tasks
    for task in tasks:
        driver.finish(task, loss_sum=10.0)


def test_the_hooks_run_once_per_epoch_and_each_epoch_waits_for_them() -> None:
    driver = driver_of()
    assert due(driver) == [(1, CALLBACKS, {})], "the first epoch waits for on_epoch_begin, too"
    hooks_ran(driver, learning_rate=0.1)
    train(driver, EPOCH)
    assert due(driver) == [(2, CALLBACKS, {"loss": 2.0})]
    hooks_ran(driver, learning_rate=0.1)
    train(driver, [task + 20 for task in EPOCH])
    assert due(driver) == [(4, CALLBACKS, {"loss": 2.0})]
    hooks_ran(driver, learning_rate=0.1)
    train(driver, [task + 40 for task in EPOCH])
    assert due(driver) == []
    close(driver, whole(driver.state.plan, checksum=15))
    assert due(driver) == [(6, LAST_CALLBACKS, {"loss": 2.0})]
    assert driver.is_in(JobState.CLOSING)
    hooks_ran(driver, ended=1.0)
    assert driver.is_in(JobState.SUCCEEDED)
    driver.check_replay()


def test_a_learning_rate_is_a_decision_that_the_tasks_of_its_epochs_carry() -> None:
    driver = driver_of()
    hooks_ran(driver, learning_rate=0.5)
    train(driver, EPOCH)
    hooks_ran(driver, learning_rate=0.25, note="LearningRateScheduler changes the learning rate")
    assert driver.take(commands.SetLearningRate) == [
        commands.SetLearningRate(epoch=0, rate=0.5),
        commands.SetLearningRate(epoch=1, rate=0.25),
    ]
    both = commands.Dispatch(purpose=Purpose.TRAIN, dispatch=9, tasks=((19, 21),))
    assert [message.learning_rate for message in task_messages(driver.state, both, 1)] == [0.5, 0.25]
    driver.check_replay()


def test_the_hooks_get_the_results_of_the_evaluation_of_their_epoch() -> None:
    driver = driver_of(validation=True)
    hooks_ran(driver)
    train(driver, EPOCH)
    assert due(driver) == []
    evaluate(driver, 3.0)
    assert due(driver) == [(2, CALLBACKS, {"loss": 2.0, "val_loss": 3.0})]
    driver.check_replay()


def test_training_ends_where_a_hook_stops_it_and_the_audit_runs_up_to_it() -> None:
    driver = driver_of()
    hooks_ran(driver)
    train(driver, EPOCH)
    hooks_ran(driver, ended=1.0, stop_training=1.0, note="EarlyStopping stops training")
    assert driver.take(commands.EndTraining) == [commands.EndTraining(epochs=1)]
    assert driver.dispatched() == []
    close(driver, whole(driver.state.plan, checksum=5))
    assert driver.state.closing.audit is not None and driver.state.closing.audit.exact
    assert driver.is_in(JobState.SUCCEEDED)
    driver.check_replay()


def test_a_resume_with_more_epochs_begins_training_again_for_the_callbacks() -> None:
    driver = driver_of()
    hooks_ran(driver)
    train(driver, EPOCH)
    hooks_ran(driver, ended=1.0, stop_training=1.0)
    close(driver, whole(driver.state.plan, checksum=5))
    driver.feed(JobResumed(reason="succeeded", epochs=2), Service.LAUNCHER, "launcher", "second launcher")
    driver.take(commands.Dispatch)
    for command in driver.take(commands.StartPod):
        driver.start_pod(command.pod, {"g": LedgerRecord(finished=((0, 20),))}, initialised=True)
    assert due(driver) == [(3, CALLBACKS, {})]
    hooks_ran(driver)
    assert driver.dispatched() == [task + 20 for task in EPOCH]
    driver.check_replay()


def test_hooks_that_were_due_at_a_stop_run_after_the_resume() -> None:
    driver = driver_of()
    assert due(driver) == [(1, CALLBACKS, {})]
    driver.feed(JobResumed(reason="failed"), Service.LAUNCHER, "launcher", "second launcher")
    driver.start_all(initialised=True)
    assert due(driver) == [(1, CALLBACKS, {})]
    driver.check_replay()


def test_tasks_that_a_ps_lost_are_trained_again_without_their_hooks() -> None:
    driver = driver_of()
    hooks_ran(driver, learning_rate=0.5)
    train(driver, EPOCH)
    hooks_ran(driver, learning_rate=0.25)
    driver.take(commands.Dispatch)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 15),))})
    again = [each for each in driver.take(commands.Dispatch) if each.again]
    assert [each.tasks for each in again] == [((15, 20),)]
    assert [message.learning_rate for message in task_messages(driver.state, again[0], 1)] == [0.5] * 5
    assert due(driver) == []
    driver.check_replay()


def test_a_hook_that_raises_fails_the_job_at_once() -> None:
    driver = driver_of()
    (number,) = driver.dispatched(Purpose.MERGE)
    failed = TaskFailed(
        task=TaskRef(purpose=Purpose.MERGE, number=number),
        dispatch=1,
        attempt=1,
        kind=FailureKind.USER_CODE,
        message="on_epoch_begin() raised",
    )
    driver.feed(failed, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
    assert "on_epoch_begin() raised" in driver.failure()
    driver.check_replay()


def instances_of(driver: Driver) -> list[dict[str, str]]:
    """The instances of the ps with the model, in the tasks at the end of an epoch that were dispatched since."""
    ends = [each for each in driver.take(commands.Dispatch) if each.label == CALLBACKS and each.evaluation % 2 == 0]
    return [dict(each.audited) for each in ends]


def test_hooks_of_an_epoch_know_which_instances_have_its_model() -> None:
    driver = driver_of()
    (begin,) = driver.take(commands.Dispatch)
    assert begin.audited == {}, "no epoch has ended"
    hooks_ran(driver)
    train(driver, EPOCH)
    (instances,) = instances_of(driver)
    assert instances == {pod.name: pod.incarnation for pod in driver.state.running_holders}


def test_hooks_of_an_epoch_wait_for_a_ps_that_has_ended() -> None:
    driver = driver_of()
    hooks_ran(driver)
    assert driver.dispatched() == EPOCH
    driver.finish(EPOCH[0], loss_sum=10.0)
    for task in EPOCH[1:-1]:
        driver.finish(task, loss_sum=10.0)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.finish(EPOCH[-1], loss_sum=10.0)
    assert instances_of(driver) == []
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),))})
    (instances,) = instances_of(driver)
    assert instances["ps-0"] == driver.state.pods[PodName("ps-0")].incarnation
    driver.check_replay()


def test_hooks_that_lost_the_model_run_again_with_the_restored_one() -> None:
    driver = driver_of()
    hooks_ran(driver)
    train(driver, EPOCH)
    (lost,) = instances_of(driver)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 15),))})
    hooks_ran(driver, model_lost=1.0)
    assert driver.state.callbacks.epochs == 1
    train(driver, EPOCH[15:])
    (instances,) = instances_of(driver)
    assert instances != lost
    assert instances["ps-0"] == driver.state.pods[PodName("ps-0")].incarnation
    hooks_ran(driver)
    assert driver.state.callbacks.epochs == 2
    driver.check_replay()


def test_hooks_that_lost_the_evaluated_model_wait_for_the_results_of_the_restored_one() -> None:
    driver, evaluated = driver_after_evaluated_epoch()
    assert instances_of(driver) == [evaluated]
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),))})
    hooks_ran(driver, model_lost=1.0)
    assert due(driver) == []
    evaluate(driver, 2.5)
    assert driver.state.evaluations[-1].incarnations != evaluated
    assert due(driver) == [(2, CALLBACKS, {"loss": 2.0, "val_loss": 2.5})]
    driver.check_replay()


def test_hooks_after_a_resume_are_not_given_another_model_than_the_evaluated_one() -> None:
    driver, evaluated = driver_after_evaluated_epoch()
    driver.take(commands.Dispatch)
    driver.feed(JobResumed(reason="failed"), Service.LAUNCHER, "launcher", "second launcher")
    for command in driver.take(commands.StartPod):
        driver.start_pod(command.pod, {"g": LedgerRecord(finished=((0, 20),))}, initialised=True)
    assert instances_of(driver) == [evaluated]
    hooks_ran(driver, model_lost=1.0)
    evaluate(driver, 3.0)
    assert instances_of(driver) == [driver.state.evaluations[-1].incarnations]
    assert driver.state.evaluations[-1].incarnations != evaluated
    driver.check_replay()
