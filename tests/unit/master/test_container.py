"""The first process of a master's container."""

from __future__ import annotations

import signal

import pytest

from elasticdl.master.container import HEALTHY_S, RESTARTS_MAX, supervise
from elasticdl.shared.process.clock import VirtualClock
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_FAULT, EXIT_REFUSED, EXIT_SUPERSEDED


def run(*masters: tuple[float, int]) -> tuple[int, list[float]]:
    """The exit code of a container whose masters run for so many seconds and end so; and the pauses between them."""
    clock, remaining, pauses = VirtualClock(), list(masters), list[float]()

    def run_master() -> int:
        seconds, code = remaining.pop(0)
        clock.advance(seconds)
        return code

    code = supervise(run_master, clock.monotonic, pauses.append)
    assert remaining == []
    return code, pauses


@pytest.mark.parametrize("code", [EXIT_FAULT, EXIT_AWAY, -signal.SIGKILL])
def test_a_master_that_fails_is_started_again(code: int) -> None:
    assert run((1.0, code), (1.0, 0)) == (0, [1.0])


@pytest.mark.parametrize("code", [0, EXIT_REFUSED, 2, EXIT_SUPERSEDED])
def test_a_result_and_a_later_master_end_the_container(code: int) -> None:
    assert run((1.0, code)) == (code, [])


def test_after_some_failures_in_a_row_the_pod_fails() -> None:
    code, pauses = run(*[(1.0, -signal.SIGKILL)] * (RESTARTS_MAX + 1))
    assert code == 128 + signal.SIGKILL
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_failures_with_a_long_time_between_them_never_fail_the_pod() -> None:
    code, pauses = run(*[(HEALTHY_S, EXIT_FAULT)] * (RESTARTS_MAX + 3), (1.0, 0))
    assert code == 0
    assert pauses == [1.0] * (RESTARTS_MAX + 3)
