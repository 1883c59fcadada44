"""The dispatch window: how many tasks are dispatched for the first time, and again."""

from __future__ import annotations

from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.spec import Limits
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.names import Purpose, Service

TASKS = 70_000


def test_a_ps_that_lost_many_tasks_gets_them_again_window_by_window() -> None:
    driver = Driver(
        job_spec(plan(records=TASKS, epochs=1, batch=1, batches=1), workers=TASKS // 8, limits=Limits(window_s=0.0))
    )
    driver.start_pod("ps-0")
    assert len(driver.dispatched()) == TASKS
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, TASKS - 1),))})
    driver.feed_from_launcher(events.ScaleRequested(workers=2))
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0")
    (first,) = driver.take(commands.Dispatch)
    assert (first.tasks, first.again) == (((0, 64),), True)
    for task in range(64):
        driver.finish(task)
    assert [command.tasks for command in driver.take(commands.Dispatch)] == [((n, n + 16),) for n in (64, 80, 96, 112)]
    driver.check_replay()


def test_tasks_that_a_worker_drops_after_a_ps_went_back_are_dispatched_in_the_order_of_rounds() -> None:
    driver = Driver(job_spec(plan(records=10_000, epochs=1), synchronous=True, grads_to_wait=1))
    driver.start_pod("ps-0")
    driver.start_pod("worker-0")
    for task in range(20):
        driver.finish(task)
    driver.dispatched()
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0")
    assert driver.dispatched() == [0, 1, 2]
    for task in (20, 21, 22):
        ref = TaskRef(purpose=Purpose.TRAIN, number=task)
        dropped = events.TaskReturned(task=ref, dispatch=1, attempt=1, reason="", is_dropped=True)
        driver.feed(dropped, Service.WORKER, "worker-0")
    for task in range(20):
        driver.finish(task)
        assert driver.dispatched() == [task + 3]
    driver.check_replay()


def test_the_task_that_a_round_waits_for_is_dispatched_however_many_others_are_outstanding() -> None:
    driver = Driver(job_spec(plan(records=10_000, epochs=1), synchronous=True, grads_to_wait=2))
    rounds = driver.state.job.rounds
    assert isinstance(rounds, Rounds)
    driver.start_pod("ps-0")
    driver.start_pod("worker-0")
    dispatched = driver.dispatched()
    assert len(dispatched) == 3 * rounds.tasks_per_cohort
    driver.finish(dispatched[0])
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0")
    assert driver.dispatched() == [dispatched[0]]
