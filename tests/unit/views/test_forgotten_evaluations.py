"""The master remembers the latest evaluations, and of earlier ones what decisions need; the log has them all."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.master.driver import Driver, close, job_spec, plan, whole
from tests.unit.master.test_evaluating import pin
from tests.unit.views.test_core_snapshot import bus_with

from elasticdl.master.core import State
from elasticdl.master.core.fold import Fold
from elasticdl.shared.job.spec import BestModel, Limits
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.names import MASTER, Purpose, Service
from elasticdl.views import core_snapshot, reading
from elasticdl.views.curves import points
from elasticdl.views.history import evaluation_rows

VALIDATION = plan(records=100, epochs=1)
REMEMBERED = 8


def driver_of(**changes: object) -> Driver:
    spec = job_spec(validation=VALIDATION, validation_data=job_spec().data, limits=Limits(evaluations_max=REMEMBERED))
    driver = Driver(replace(spec, **changes))  # type: ignore[arg-type]
    driver.start_all(initialised=True)
    return driver


def evaluate(driver: Driver, loss: float) -> None:
    """Finish the evaluation that the master has begun, and save its model if it is wanted."""
    pin(driver)
    for number in driver.dispatched(Purpose.EVALUATE):
        driver.finish(number, purpose=Purpose.EVALUATE)
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": loss})
    for number in driver.dispatched(Purpose.EXPORT):
        driver.finish(number, purpose=Purpose.EXPORT)


def evaluate_often(driver: Driver, count: int, loss: float = 2.0) -> None:
    for _ in range(count):
        driver.feed(events.StepReached(step=driver.state.step_reached + 1), Service.PS, "ps-0", "ps-0.1")
        evaluate(driver, loss)


def all_evaluations(driver: Driver) -> list[int]:
    folding = Fold(State(forgets_evaluations=False))
    for record in driver.log:
        folding.take(record)
    return [row["evaluation"] for row in evaluation_rows(folding.finish())]


def test_state_and_core_snapshot_do_not_grow_with_the_evaluations_of_a_job() -> None:
    driver = driver_of()
    sizes = []
    for count in (20, 100):
        evaluate_often(driver, count)
        driver.feed(events.CommandsRan(up_to=len(driver.log)), Service.MASTER, "master", "master")
        sizes.append(len(core_snapshot.encode(driver.state)))
    assert [each.number for each in driver.state.evaluations] == [*range(113, 121)]
    assert driver.state.forgotten_evaluations == 112
    assert sizes[1] < sizes[0] + 64
    assert all_evaluations(driver) == [*range(1, 121)]
    driver.check_replay()


async def test_those_that_show_a_job_read_what_its_core_snapshot_has_forgotten() -> None:
    driver = driver_of()
    evaluate_often(driver, 30)
    bus = await bus_with(driver.log)
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(driver.state), after=0)
    assert (await reading.exact(bus)).snapshot_seq > 0
    assert [row["evaluation"] for row in evaluation_rows((await reading.exact(bus)).state)] == [*range(23, 31)]
    shown = await reading.exact(bus, all_evaluations=True)
    assert [row["evaluation"] for row in evaluation_rows(shown.state)] == [*range(1, 31)]
    assert (shown.read_seq, shown.state.seq) == (len(driver.log), driver.state.seq)
    steps = [point.value for point in points(driver.log) if point.tag == "evaluation_loss_vs_iterations"]
    assert len(steps) == 30


async def test_without_forgotten_evaluations_the_core_snapshot_is_enough() -> None:
    driver = driver_of()
    evaluate_often(driver, REMEMBERED)
    bus = await bus_with(driver.log)
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(driver.state), after=0)
    shown = await reading.exact(bus, all_evaluations=True)
    assert shown.snapshot_seq > 0
    assert [row["evaluation"] for row in evaluation_rows(shown.state)] == [*range(1, REMEMBERED + 1)]


def test_the_saved_evaluation_is_remembered_and_its_model_exported() -> None:
    driver = driver_of(best=BestModel(metric="loss", save=True, from_epoch=-1), output="file:///o")
    evaluate_often(driver, 1, loss=3.0)
    evaluate_often(driver, 1, loss=1.0)
    evaluate_often(driver, 30)
    assert [each.number for each in driver.state.evaluations][:2] == [2, 25]
    while tasks := driver.dispatched():
        for task in tasks:
            driver.finish(task)
    driver.take(Dispatch)
    close(driver, whole(driver.state.plan))
    evaluate_final(driver)
    (export,) = [each for each in driver.take(Dispatch) if each.purpose is Purpose.EXPORT]
    assert export.evaluation == 2
    driver.check_replay()


def evaluate_final(driver: Driver) -> None:
    pin(driver)
    for number in driver.dispatched(Purpose.EVALUATE):
        driver.finish(number, purpose=Purpose.EVALUATE)
    for number in driver.dispatched(Purpose.MERGE):
        driver.finish(number, purpose=Purpose.MERGE, results={"loss": 2.0})


def test_the_end_of_the_present_epoch_is_remembered_for_its_callbacks() -> None:
    driver = driver_of(evaluate_epochs=True, callbacks=("Stopping",))
    (begin,) = driver.dispatched(Purpose.MERGE)
    driver.finish(begin, purpose=Purpose.MERGE)
    for task in driver.dispatched():
        driver.finish(task)
    evaluate(driver, 2.0)
    end_of_epoch = driver.state.evaluations[-1]
    assert end_of_epoch.is_epoch_end
    evaluate_often(driver, 3 * REMEMBERED)
    assert driver.state.evaluations[0] is end_of_epoch
    assert len(driver.state.evaluations) == 1 + REMEMBERED
    driver.check_replay()
