"""When a master that ended is started again, and what is said about it."""

from __future__ import annotations

import pytest

from elasticdl.cli.local.restart_policy import RestartPolicy, Revivals
from elasticdl.shared.process.exit_codes import EXIT_AWAY

POLICY = RestartPolicy(faults_max=2, recent_s=60.0, pause_s=0.5, pause_s_max=3.0)


def last_word(lines: int) -> str:
    return f"the last {lines} lines"


def test_one_that_can_not_work_for_now_comes_back_ever_more_slowly_and_never_gives_up() -> None:
    revivals = Revivals(POLICY)
    found = [revivals.after(EXIT_AWAY, float(second), last_word) for second in range(6)]
    assert [each.wait_s for each in found] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert not any(each.is_hopeless for each in found)
    assert found[0].text == "the master can't work for now and is started again in 0.5 s: the last 1 lines"
    assert revivals.after(EXIT_AWAY, 70.0, last_word).wait_s == 0.5


@pytest.mark.parametrize("exit_code", [-9, -15])
def test_one_that_was_killed_comes_back_at_once_however_often(exit_code: int) -> None:
    revivals = Revivals(POLICY)
    for _ in range(10):
        revival = revivals.after(exit_code, 0.0, last_word)
        assert (revival.wait_s, revival.is_hopeless) == (0.0, False)
        assert "was killed" in revival.text


def test_one_that_keeps_dying_is_given_up() -> None:
    revivals = Revivals(POLICY)
    first, second, third = (revivals.after(70, 0.0, last_word) for _ in range(3))
    assert (first.wait_s, second.wait_s) == (0.0, 0.5)
    assert "exit code 70" in first.text
    assert third.is_hopeless
    assert "keeps dying (exit code 70)" in third.text
    assert not revivals.after(70, 100.0, last_word).is_hopeless
