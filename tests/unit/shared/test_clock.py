"""Clocks: the wall clock may be set at any moment, and a job's time goes on."""

from __future__ import annotations

import time

import pytest

from elasticdl.shared.process.clock import JobClock, SystemClock, VirtualClock

HOUR_S = 3600.0


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_step_of_the_wall_clock_moves_no_clock_of_a_process(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    clock, wall_clock = SystemClock(), time.time
    before_s = clock.now()
    monkeypatch.setattr(time, "time", lambda: wall_clock() + step_s)
    assert 0.0 <= clock.now() - before_s < HOUR_S
    assert 0.0 <= SystemClock().now() - before_s < HOUR_S


def test_processes_with_the_same_zero_agree_whenever_they_have_started() -> None:
    launcher = JobClock(SystemClock())
    launcher.continue_from(launcher.now() + HOUR_S)
    assert SystemClock(launcher.zero_s).now() == pytest.approx(launcher.now(), abs=HOUR_S / 2)


def test_a_job_that_is_continued_with_an_earlier_clock_does_not_go_back() -> None:
    machine = VirtualClock(1000.0)
    clock = JobClock(machine)
    clock.continue_from(5000.0)
    machine.advance(10.0)
    assert (clock.now(), clock.ahead_s) == (5010.0, 4000.0)
    clock.continue_from(4000.0)
    assert clock.now() == 5010.0
