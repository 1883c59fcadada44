"""Second attempts of slow tasks."""

from __future__ import annotations

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Purpose, Service


@pytest.fixture
def driver() -> Driver:
    return Driver(job_spec(output="file:///out"))


@pytest.fixture
def synchronous() -> Driver:
    """A synchronous job of two workers, with the tasks of three cohorts dispatched."""
    driver = Driver(job_spec(synchronous=True, grads_to_wait=2))
    driver.start_all(initialised=True)
    driver.start_all()
    assert driver.dispatched() == list(range(6))
    return driver


def take_task(driver: Driver, task: int, worker: str) -> None:
    taken = events.TaskTaken(task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, attempt=1, reply=f"r{task}")
    driver.feed(taken, Service.WORKER, worker, driver.incarnation(worker))


def test_an_idle_worker_gets_a_second_attempt_at_a_slow_task(driver: Driver) -> None:
    driver.start_all()
    driver.dispatched()
    for task in range(39):
        take_task(driver, task, "worker-0")
        driver.finish(task, times=Times.of({"compute": 0.1}))
    take_task(driver, 39, "worker-0")
    assert driver.dispatched() == []
    driver.fire("speculation")
    assert driver.dispatched() == [39]
    take_task(driver, 39, "worker-1")
    fire_again = events.TimerFired(timer="speculation", due_s=0.0)
    driver.now_s += 100.0
    driver.feed(fire_again, Service.MASTER, "master", "master")
    assert driver.dispatched() == []
    driver.finish(39, worker="worker-1")
    assert driver.is_in(JobState.CLOSING)


def test_a_task_that_all_wait_for_in_synchronous_training_gets_a_second_attempt(synchronous: Driver) -> None:
    driver = synchronous
    take_task(driver, 0, "worker-0")
    take_task(driver, 1, "worker-1")
    take_task(driver, 2, "worker-0")
    waits(driver, 2)
    assert driver.dispatched() == [], "task 0 and 1 come first"
    waits(driver, 0)
    assert driver.dispatched() == [], "worker-1 may be about to say that it waits, too"
    driver.fire("speculation")
    assert driver.dispatched() == [1]
    waits(driver, 0)
    take_task(driver, 1, "worker-0")
    waits(driver, 0)
    assert driver.dispatched() == [], "two attempts are enough"
    driver.check_replay()


def test_no_second_attempt_of_tasks_whose_workers_all_wait(synchronous: Driver) -> None:
    driver = synchronous
    take_task(driver, 0, "worker-0")
    take_task(driver, 1, "worker-1")
    waits(driver, 0)
    waits(driver, 1, "worker-1")
    driver.fire("speculation")
    assert driver.dispatched() == []


def waits(driver: Driver, task: int, worker: str = "worker-0") -> None:
    event = events.RoundDelayed(task=TaskRef(purpose=Purpose.TRAIN, number=task), batch=1)
    driver.feed(event, Service.WORKER, worker, driver.incarnation(worker))


def test_no_speculation_while_the_queue_has_tasks(driver: Driver) -> None:
    driver.start_all()
    driver.dispatched()
    take_task(driver, 0, "worker-0")
    driver.now_s += 1000.0
    driver.feed(events.ScaleRequested(workers=2), Service.CLIENT, "client")
    assert driver.dispatched() == []
