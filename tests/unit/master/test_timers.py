"""Timers: each fires once, and counts only at the time that it was last set to."""

from __future__ import annotations

import asyncio

from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.master.core.timers import EVALUATION
from elasticdl.master.service import TimerService
from elasticdl.shared.messages.events import TimerFired
from elasticdl.shared.names import Service
from elasticdl.shared.process.clock import SystemClock


def test_a_timer_that_was_set_again_is_not_fired_by_its_former_due_time() -> None:
    driver = Driver(job_spec(validation=plan(epochs=1), evaluation_interval_s=60.0))
    driver.start_all()
    due_s = driver.state.timers[EVALUATION]
    driver.feed(TimerFired(timer=EVALUATION, due_s=due_s - 30.0), Service.MASTER, "master")
    assert driver.state.timers[EVALUATION] == due_s
    assert not driver.state.evaluation_due
    driver.fire(EVALUATION)
    assert EVALUATION not in driver.state.timers
    assert driver.state.evaluation_due
    driver.check_replay()


async def test_a_timer_that_is_set_again_to_the_same_time_fires_again() -> None:
    fired: asyncio.Queue[TimerFired] = asyncio.Queue()
    timers = TimerService(SystemClock(), fired.put_nowait)
    due = {"speculation": 1.0}
    timers.set(due)
    event = await fired.get()
    timers.set(due)
    await asyncio.sleep(0)
    assert fired.empty(), "its event was not applied yet"
    timers.on_fired(event)
    timers.set(due)
    assert await fired.get() == event


async def test_an_event_of_a_former_due_time_does_not_stop_a_running_timer() -> None:
    fired: asyncio.Queue[TimerFired] = asyncio.Queue()
    timers = TimerService(SystemClock(), fired.put_nowait)
    timers.set({"speculation": 1.0})
    timers.on_fired(TimerFired(timer="speculation", due_s=0.5))
    assert (await fired.get()).due_s == 1.0
