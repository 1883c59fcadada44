"""When a master that exited is restarted, and the message about it."""

from __future__ import annotations

import pytest

from elasticdl.cli.local.restart_policy import RestartDecision, RestartLimits, RestartPolicy
from elasticdl.shared.process.exit_codes import EXIT_AWAY
from elasticdl.shared.process.retries import Backoff

LIMITS = RestartLimits(crashes_max=2, window_s=60.0, backoff=Backoff(first_s=0.5, max_s=3.0))


def last_error(lines: int) -> str:
    return f"the last {lines} lines"


def test_a_master_whose_broker_is_unreachable_restarts_with_backoff_and_without_limit() -> None:
    policy = RestartPolicy(LIMITS)
    found = [policy.decide(EXIT_AWAY, float(second), last_error) for second in range(6)]
    assert [each.delay_s for each in found] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert not any(each.ends for each in found)
    assert found[0].message == "The master exited and restarts in 0.5 s: the last 1 lines"
    assert policy.decide(EXIT_AWAY, 70.0, last_error).delay_s == 0.5


@pytest.mark.parametrize("exit_code", [-9, -15])
def test_a_killed_master_restarts_at_once_without_limit(exit_code: int) -> None:
    policy = RestartPolicy(LIMITS)
    for _ in range(10):
        decision = policy.decide(exit_code, 0.0, last_error)
        assert (decision.delay_s, decision.ends) == (0.0, False)
        assert "was killed" in decision.message


def test_a_master_that_keeps_crashing_is_not_restarted() -> None:
    policy = RestartPolicy(LIMITS)
    first, second, third = (policy.decide(70, 0.0, last_error) for _ in range(3))
    assert (first.delay_s, second.delay_s) == (0.0, 0.5)
    assert "exit code 70" in first.message
    assert third.ends
    assert "keeps crashing (exit code 70)" in third.message
    assert not policy.decide(70, 100.0, last_error).ends


def test_the_run_ends_with_the_job_and_with_a_refusal() -> None:
    policy = RestartPolicy(LIMITS)
    assert policy.decide(0, 0.0, last_error) == RestartDecision(ends=True)
    refused = policy.decide(1, 0.0, last_error)
    assert refused == RestartDecision(message="the master can't continue:\nthe last 5 lines", ends=True)
