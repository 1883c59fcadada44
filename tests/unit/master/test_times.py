"""Times by the clocks of workers and ps: they move neither the job's clock nor its durations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core import State
from elasticdl.master.core.evolve import evolve
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.messages.sender_times import SKEW_S_MAX
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Purpose, Service
from elasticdl.views.run_meter import RunMeter

HOUR_S = 3600.0
FAR_S = 4e9
STEPS_S = (FAR_S, -FAR_S, HOUR_S, -HOUR_S, float("nan"))


def trained() -> Driver:
    """A job whose worker has finished a task and taken the next one."""
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    for task in (0, 1):
        taken = events.TaskTaken(task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, attempt=1, reply="r")
        driver.feed(taken, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
        if task == 0:
            driver.finish(task, times=Times.of({"compute": 0.01}))
    return driver


def by_other_clocks(driver: Driver, step_s: float) -> Iterator[LogRecord]:
    """The log, where the clocks of workers and ps differ from those of launcher and master."""
    for record in driver.log:
        is_theirs = record.envelope.service in (Service.WORKER, Service.PS)
        time_s = record.envelope.time_s + (step_s if is_theirs else 0.0)
        yield replace(record, envelope=replace(record.envelope, time_s=time_s))


@pytest.mark.parametrize("step_s", STEPS_S)
def test_the_clocks_of_workers_and_ps_do_not_move_the_job(step_s: float) -> None:
    driver, state = trained(), State()
    for record in by_other_clocks(driver, step_s):
        evolve(state, record)
    times = [state.clock_s, state.now_s, state.first_step_s, state.trained_s]
    times += [each.since_s for attempts in state.running_attempts.values() for each in attempts.values()]
    assert len(times) == 5
    assert times == pytest.approx([driver.state.now_s] * 5, abs=1.0)
    assert state.timers == pytest.approx(driver.state.timers, abs=1.0)


def test_a_clock_that_is_a_little_ahead_is_believed_and_does_not_move_the_jobs() -> None:
    driver, state = trained(), State()
    for record in by_other_clocks(driver, SKEW_S_MAX / 2):
        evolve(state, record)
    assert state.trained_s == pytest.approx(driver.state.trained_s + SKEW_S_MAX / 2)
    assert state.clock_s == driver.state.clock_s


@pytest.mark.parametrize("step_s", STEPS_S)
def test_the_meter_counts_no_seconds_that_only_a_workers_clock_has_seen(step_s: float) -> None:
    driver, state, meter = trained(), State(), RunMeter()
    for record in by_other_clocks(driver, step_s):
        evolve(state, record)
        meter.on_record(record.envelope, state)
    measured = meter.measured(state, 0.0)
    assert 0.0 < measured.working_s + measured.stalled_s + measured.starting_s < 1.0
    assert measured.first_gradient_s == pytest.approx(driver.now_s, abs=1.0)
