"""The window of an evaluation or a prediction job: its tasks are dispatched as results arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.unit.master.driver import Driver, job_spec, plan
from tests.unit.master.test_evaluating import pin

from elasticdl.master.core.task_window import WINDOW_TASKS_MAX, TaskWindow
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.spec import JobSpec, Limits, PredictionSpec
from elasticdl.shared.messages import commands, events
from elasticdl.shared.names import Purpose
from elasticdl.views import core_snapshot

TASKS = 1000
DATA = plan(records=TASKS, epochs=1, batch=1, batches=1)
SLOW = Limits(window_s=0.0)
"""A window of no more than its least size."""


def started(spec: JobSpec) -> Driver:
    driver = Driver(spec)
    driver.start_all(initialised=True)
    pin(driver)
    return driver


def evaluation_spec(**changes: object) -> JobSpec:
    spec = job_spec(validation=DATA, validation_data=job_spec().data, limits=SLOW)
    return replace(spec, plan=replace(DATA, sources=()), kind=JobKind.EVALUATE, **changes)  # type: ignore[arg-type]


def prediction_spec(**changes: object) -> JobSpec:
    spec = replace(evaluation_spec(), kind=JobKind.PREDICT, output="file:///p", prediction=PredictionSpec())
    return replace(spec, **changes)  # type: ignore[arg-type]


JOBS = [(evaluation_spec, Purpose.EVALUATE), (prediction_spec, Purpose.PREDICT)]


def finish(driver: Driver, purpose: Purpose, task: int) -> None:
    driver.finish(task, purpose=purpose, records=1, file=f"file-{task}" if purpose is Purpose.PREDICT else "")


@pytest.mark.parametrize(("spec", "purpose"), JOBS)
def test_all_tasks_are_dispatched_once_and_few_at_a_time(spec: Callable[..., JobSpec], purpose: Purpose) -> None:
    driver, random = started(spec()), Random(1)
    queue = driver.dispatched(purpose)
    first, dispatched, most, dispatches = min(queue), [*queue], 0, 1
    while queue:
        most = max(most, len(queue))
        finish(driver, purpose, queue.pop(random.randrange(len(queue))))
        queue += (added := driver.dispatched(purpose))
        dispatched += added
        dispatches += bool(added)
    assert dispatched == [*range(first, first + TASKS)]
    assert most == 64
    assert dispatches <= 1 + -(-(TASKS - 64) // 16), "each is a record of the log"
    driver.check_replay()


@pytest.mark.parametrize(("spec", "purpose"), JOBS)
def test_an_eighth_of_the_least_window_for_each_worker(spec: Callable[..., JobSpec], purpose: Purpose) -> None:
    assert len(started(spec(workers=20)).dispatched(purpose)) == 160


@pytest.mark.parametrize(("spec", "purpose"), JOBS)
def test_the_window_has_the_wanted_seconds_of_work(spec: Callable[..., JobSpec], purpose: Purpose) -> None:
    driver = started(spec(limits=Limits(window_s=100.0)))
    queue = driver.dispatched(purpose)
    driver.now_s += 4.0
    for task in queue[:16]:
        finish(driver, purpose, task)
    more = driver.dispatched(purpose)
    assert len(queue[16:] + more) == pytest.approx(100.0 * 16 / 4.0, rel=0.2), "16 tasks in 4 s"
    driver.check_replay()


def test_tasks_of_an_abandoned_evaluation_that_were_not_dispatched_never_are() -> None:
    driver = started(evaluation_spec())
    first = driver.dispatched(Purpose.EVALUATE)
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    for task in first:
        finish(driver, Purpose.EVALUATE, task)
    assert driver.dispatched(Purpose.EVALUATE) == []
    driver.start_all(initialised=True)
    pin(driver)
    again = driver.dispatched(Purpose.EVALUATE)
    assert (len(again), min(again)) == (64, first[0] + TASKS)
    driver.check_replay()


def test_training_is_dispatched_beside_an_evaluation() -> None:
    driver = Driver(job_spec(validation=DATA, validation_data=job_spec().data, limits=SLOW, evaluate_epochs=True))
    driver.start_all(initialised=True)
    for task in driver.dispatched():
        driver.finish(task)
    pin(driver)
    dispatches = driver.take(commands.Dispatch)
    assert {each.purpose: each.tasks for each in dispatches} == {
        Purpose.TRAIN: ((20, 40),),
        Purpose.EVALUATE: ((TASKS, TASKS + 64),),
    }


def test_a_resumed_prediction_dispatches_what_has_no_file_and_little_of_it() -> None:
    driver = started(prediction_spec())
    for task in driver.dispatched(Purpose.PREDICT)[1::2]:
        finish(driver, Purpose.PREDICT, task)
    done = set(driver.state.prediction.files)
    driver.take(commands.Dispatch)
    driver.feed_from_launcher(events.JobResumed(reason="resumed after stopped"))
    driver.start_all(initialised=True)
    queue, again = driver.dispatched(Purpose.PREDICT), list[int]()
    while queue:
        assert len(queue) <= 64
        again.append(task := queue.pop())
        finish(driver, Purpose.PREDICT, task)
        queue += driver.dispatched(Purpose.PREDICT)
    assert sorted(again) == [task for task in range(TASKS) if task not in done]
    driver.check_replay()


def test_results_wait_for_a_slow_task_no_further_than_the_largest_window() -> None:
    window, tasks = TaskWindow(), 100_000
    window.on_dispatched(window.next_tasks(tasks, 64), 0.0)
    while len(window.outstanding) > 1:
        window.on_result(window.outstanding.ranges()[-1][1] - 1)
        if ranges := window.next_tasks(tasks, 64):
            window.on_dispatched(ranges, 0.0)
    assert (window.frontier, window.outstanding.ranges()) == (WINDOW_TASKS_MAX, [(0, 1)])
    window.on_result(0)
    assert window.next_tasks(tasks, 64) == ((WINDOW_TASKS_MAX, WINDOW_TASKS_MAX + 64),)


def test_a_core_snapshot_does_not_grow_with_the_tasks_of_an_evaluation() -> None:
    sizes = []
    for tasks in (TASKS, 100 * TASKS):
        data = plan(records=tasks, epochs=1, batch=1, batches=1)
        driver = started(evaluation_spec(validation=data))
        sizes.append(len(core_snapshot.encode(driver.state)))
    assert sizes[1] < sizes[0] + 32
