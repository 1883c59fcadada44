"""Values of ``elasticdl chaos --kill``."""

from __future__ import annotations

import pytest
from tests.unit.master.driver import job_spec

from elasticdl.cli.commands.chaos import Rate, check, parse_rate
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import Strategy


def test_a_rate_has_targets_and_a_mean_time() -> None:
    assert parse_rate("worker:5s") == Rate(targets=("worker",), mean_s=5.0)
    assert parse_rate("ps+master:0.5") == Rate(targets=("ps", "master"), mean_s=0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("foo:5s", "has no valid target: 'foo' is none of"),
        ("ps+:5s", "has no valid target: '' is none of"),
        ("worker:0s", "'0s' is not a number of seconds above 0"),
        ("worker:-1s", "'-1s' is not a number of seconds above 0"),
        ("worker:", "'' is not a number of seconds above 0"),
        ("worker", "is not of the form TARGET:SECONDS"),
    ],
)
def test_the_error_names_the_wrong_part_of_a_rate(text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        parse_rate(text)
    assert f"--kill={text}" in str(refused.value) and refused.value.usage


@pytest.mark.parametrize("targets", [("ps",), ("worker", "all-ps")])
def test_a_ring_without_tables_has_no_ps_to_kill(targets: tuple[str, ...]) -> None:
    rates = [Rate(targets=targets, mean_s=1.0)]
    with pytest.raises(UserError, match="its workers form a ring"):
        check(rates, job_spec(strategy=Strategy.ALLREDUCE))
    check(rates, job_spec(strategy=Strategy.ALLREDUCE, ps=2))
    check(rates, job_spec())
    check([Rate(targets=("worker",), mean_s=1.0)], job_spec(strategy=Strategy.ALLREDUCE))
