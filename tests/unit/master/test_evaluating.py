"""Evaluations in the master's core: triggers, phases, and which pins are closed."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.master.driver import Driver, close, job_spec, plan, whole

from elasticdl.master.core.timers import PIN_PAUSE
from elasticdl.master.main import result_of
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import Purpose, Service

VALIDATION = plan(records=100, epochs=1)


def driver_of_epochs(*, ps: int = 1, evaluation_interval_s: float = 0.0) -> Driver:
    """A job of two epochs of 20 tasks each, whose ends are evaluated; every process runs."""
    spec = job_spec(
        validation=VALIDATION,
        validation_data=job_spec().data,
        evaluate_epochs=True,
        evaluation_interval_s=evaluation_interval_s,
        ps=ps,
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    return driver


def pin(driver: Driver, step: int = 17) -> list[int]:
    """Answer every order to pin the model, at this step; returns the numbers of the evaluations."""
    orders = driver.take(commands.OpenPin)
    for order in orders:
        pinned = events.ModelPinned(evaluation=order.evaluation, step=step)
        driver.feed(pinned, Service.PS, order.ps, driver.incarnation(order.ps))
    return [order.evaluation for order in orders]


def test_an_evaluation_at_the_end_of_each_epoch_and_of_the_job() -> None:
    driver = driver_of_epochs()
    for task in driver.dispatched():
        assert driver.state.evaluations == []
        driver.finish(task)
    evaluate(driver, VALIDATION)
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan))
    evaluate(driver, VALIDATION)
    assert driver.is_in(JobState.SUCCEEDED)
    reasons = [(each.reason, each.epoch, each.is_epoch_end, each.results) for each in driver.state.evaluations]
    assert reasons == [
        ("epoch 1 is complete", 0, True, {"loss": 2.0}),
        ("training is complete", 1, True, {"loss": 2.0}),
    ]
    driver.check_replay()


def test_the_next_epoch_begins_when_every_ps_has_pinned_the_model() -> None:
    driver = driver_of_epochs(ps=2)
    assert driver.dispatched() == list(range(20))
    for task in range(20):
        assert driver.dispatched() == []
        driver.finish(task)
    first, second = driver.take(commands.OpenPin)
    for order in (first, second):
        assert driver.dispatched() == []
        pinned = events.ModelPinned(evaluation=order.evaluation, step=17)
        driver.feed(pinned, Service.PS, order.ps, driver.incarnation(order.ps))
    tasks = [each for each in driver.take(commands.Dispatch) if each.purpose is Purpose.TRAIN]
    assert [each.tasks for each in tasks] == [((20, 40),)], "training does not wait for the evaluation's result"
    driver.check_replay()


def test_an_epoch_whose_pin_is_lost_after_the_next_one_has_begun_has_no_evaluation() -> None:
    driver = driver_of_epochs()
    for task in driver.dispatched():
        driver.finish(task)
    pin(driver)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),))})
    assert driver.take(commands.OpenPin) == []
    for task in driver.dispatched():
        driver.finish(task)
    assert driver.is_in(JobState.CLOSING)
    driver.check_replay()


def test_a_ledger_with_tasks_of_the_next_epoch_does_not_stop_the_job() -> None:
    driver = driver_of_epochs(ps=2)
    dispatched = driver.dispatched()
    for ps in ("ps-0", "ps-1"):
        driver.exit_pod(ps, ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),), open={20: 2})})
    driver.start_pod("ps-1", {"g": LedgerRecord(finished=((0, 19),))})
    driver.finish(dispatched[19])
    assert driver.take(commands.OpenPin) == [], "ps-0 has learned a batch of the second epoch already"
    assert driver.dispatched() == list(range(20, 40))
    driver.check_replay()


def test_the_clock_does_not_delay_the_end_of_an_epoch() -> None:
    driver = driver_of_epochs(evaluation_interval_s=60.0)
    driver.fire("evaluation")
    evaluate(driver, VALIDATION)
    for task in driver.dispatched():
        driver.finish(task)
    assert len(pin(driver)) == 1
    assert driver.state.evaluations[-1].is_epoch_end
    driver.check_replay()


def evaluate(driver: Driver, validation: Plan) -> None:
    """Pin, evaluate and merge, if the master wants an evaluation."""
    for order in driver.take(commands.OpenPin):
        pinned = events.ModelPinned(evaluation=order.evaluation, step=17)
        driver.feed(pinned, Service.PS, order.ps, driver.incarnation(order.ps))
    tasks = driver.dispatched(Purpose.EVALUATE)
    assert len(tasks) in (0, validation.tasks)
    for number in tasks:
        driver.finish(number, purpose=Purpose.EVALUATE, states={"loss": (b"\0" * 16,)})
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": 2.0})


def test_a_ps_death_during_an_evaluation_starts_it_again_under_a_new_number() -> None:
    driver = driver_of_epochs(ps=2)
    for task in range(20):
        driver.finish(task)
    order, _ = driver.take(commands.OpenPin)
    driver.feed(
        events.ModelPinned(evaluation=order.evaluation, step=100), Service.PS, "ps-0", driver.incarnation("ps-0")
    )
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),))})
    assert [again.evaluation for again in driver.take(commands.OpenPin)] == [order.evaluation + 1] * 2
    driver.check_replay()


def test_an_evaluation_whose_pin_a_worker_has_not_found_starts_again() -> None:
    """The worker has asked an instance of a ps that was replaced, and still runs."""
    driver = driver_of_epochs()
    for task in driver.dispatched():
        driver.finish(task)
    evaluate(driver, VALIDATION)
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan))
    driver.take(commands.ClosePin)
    (former,) = pin(driver)
    first, *_ = driver.dispatched(Purpose.EVALUATE)
    drop(driver, Purpose.EVALUATE, first - 1)
    assert not driver.state.timers
    drop(driver, Purpose.EVALUATE, first)
    assert driver.take(commands.ClosePin) and driver.take(commands.OpenPin) == []
    driver.fire(PIN_PAUSE)
    assert pin(driver) == [former + 1]
    driver.check_replay()


def drop(driver: Driver, purpose: Purpose, number: int) -> None:
    task = TaskRef(purpose=purpose, number=number)
    dropped = events.TaskReturned(task=task, dispatch=1, attempt=1, reason="evaluation is over", is_dropped=True)
    driver.feed(dropped, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def test_no_evaluation_begins_before_every_ps_has_its_model() -> None:
    driver = Driver(job_spec(validation=plan(records=100, epochs=1), validation_data=job_spec().data, ps=2))
    driver.start_all()
    driver.feed(events.StepReached(step=10), Service.PS, "ps-0", driver.incarnation("ps-0"))
    for ps in ("ps-0", "ps-1"):
        assert driver.take(commands.OpenPin) == []
        driver.feed(events.ModelInitialised(signature="s", parameters=1), Service.PS, ps, driver.incarnation(ps))
    assert [order.ps for order in driver.take(commands.OpenPin)] == ["ps-0", "ps-1"]
    driver.check_replay()


def test_a_model_counts_although_the_process_adapter_reports_last() -> None:
    driver = Driver(job_spec(validation=plan(records=100, epochs=1), validation_data=job_spec().data))
    for event in (events.PsStarted(address="127.0.0.1:1"), events.ModelInitialised(signature="s", parameters=1)):
        driver.feed(event, Service.PS, "ps-0", "ps-0.1")
    driver.start_all()
    driver.feed(events.StepReached(step=10), Service.PS, "ps-0", driver.incarnation("ps-0"))
    assert len(driver.take(commands.OpenPin)) == 1


def test_an_evaluation_waits_until_a_restored_ps_has_caught_up() -> None:
    driver = Driver(job_spec(validation=plan(records=100, epochs=1), validation_data=job_spec().data, ps=2))
    driver.start_all(initialised=True)
    for task in range(6):
        driver.finish(task)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 4),), step=20)}, initialised=True)
    driver.feed(events.StepReached(step=30), Service.PS, "ps-0", driver.incarnation("ps-0"))
    for task in (4, 5):
        assert driver.take(commands.OpenPin) == []
        driver.finish(task)
    assert [order.ps for order in driver.take(commands.OpenPin)] == ["ps-0", "ps-1"]
    driver.check_replay()


def test_an_order_of_a_former_evaluation_fails_without_ending_the_present_one() -> None:
    driver = driver_of_epochs()
    for task in range(20):
        driver.finish(task)
    ((seq, place),) = [
        (seq, place)
        for seq, decided in driver.state.pending_commands
        for place, command in enumerate(decided.commands)
        if isinstance(command, commands.OpenPin)
    ]
    driver.take(commands.OpenPin)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 20),))})
    (again,) = driver.take(commands.OpenPin)
    failure = events.CommandFailure(position=place, message="ps-0 does not answer")
    driver.feed(events.CommandsRan(up_to=seq, failures=(failure,)), Service.MASTER, "master", "master")
    assert driver.state.evaluation
    assert driver.state.evaluation.number == again.evaluation
    driver.check_replay()


def test_a_step_that_a_restored_ps_reaches_again_triggers_no_evaluation() -> None:
    validation = plan(records=100, epochs=1)
    driver = Driver(job_spec(validation=validation, validation_data=job_spec().data, evaluation_steps=50))
    driver.start_all(initialised=True)
    for step in (50, 100):
        driver.feed(events.StepReached(step=step), Service.PS, "ps-0", driver.incarnation("ps-0"))
        evaluate(driver, validation)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 8),), step=40)})
    for step in (50, 100, 150):
        driver.feed(events.StepReached(step=step), Service.PS, "ps-0", driver.incarnation("ps-0"))
        evaluate(driver, validation)
    reasons = [evaluation.reason for evaluation in driver.state.evaluations]
    assert reasons == ["step 50 is reached", "step 100 is reached", "step 150 is reached"]
    driver.check_replay()


def test_a_pin_that_was_opened_too_late_is_closed() -> None:
    driver = driver_of_epochs(ps=2)
    for task in range(20):
        driver.finish(task)
    first, second = driver.take(commands.OpenPin)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.feed(
        events.ModelPinned(evaluation=second.evaluation, step=9), Service.PS, "ps-1", driver.incarnation("ps-1")
    )
    assert driver.take(commands.ClosePin) == [commands.ClosePin(ps=second.ps, evaluation=second.evaluation)]
    driver.feed(events.ModelPinned(evaluation=first.evaluation, step=9), Service.PS, "ps-0", driver.incarnation("ps-0"))
    assert driver.take(commands.ClosePin) == []
    driver.check_replay()


def evaluation_job(checksum: int) -> Driver:
    """A job that only evaluates, whose ps have pinned the model."""
    spec = job_spec(
        replace(VALIDATION, sources=()),
        kind=JobKind.EVALUATE,
        checksum=checksum,
        validation=VALIDATION,
        validation_data=job_spec().data,
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    pin(driver)
    return driver


def test_an_evaluation_job_counts_the_first_result_of_each_task_and_succeeds() -> None:
    driver = evaluation_job(checksum=14)
    tasks = driver.dispatched(Purpose.EVALUATE)
    assert len(tasks) == VALIDATION.tasks == 2
    for number in (tasks[0], tasks[0], tasks[1]):
        driver.finish(number, purpose=Purpose.EVALUATE, records=50, checksum=7)
    assert driver.state.evaluations[-1].records == VALIDATION.records
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": 2.0})
    assert driver.is_in(JobState.SUCCEEDED)
    assert driver.state.evaluations[-1].results == {"loss": 2.0}
    assert result_of(driver.state) == (0, "The job has succeeded.\nloss: 2")
    driver.check_replay()


def test_an_evaluation_job_whose_records_differ_from_the_index_fails() -> None:
    driver = evaluation_job(checksum=15)
    for number in driver.dispatched(Purpose.EVALUATE):
        driver.finish(number, purpose=Purpose.EVALUATE, records=50, checksum=7)
    assert driver.state.failure is not None
    assert "100 records with checksum 000000000000000e were evaluated" in driver.state.failure.message
    driver.check_replay()


def test_an_evaluation_job_whose_ps_dies_evaluates_every_record_again() -> None:
    driver = evaluation_job(checksum=14)
    first, _ = driver.dispatched(Purpose.EVALUATE)
    driver.finish(first, purpose=Purpose.EVALUATE, records=50, checksum=7)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_all(initialised=True)
    pin(driver)
    again = driver.dispatched(Purpose.EVALUATE)
    assert len(again) == VALIDATION.tasks and first not in again
    assert driver.state.evaluations[-1].records == 0
    driver.check_replay()
