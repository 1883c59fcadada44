"""What ``elasticdl chaos --kill`` means."""

from __future__ import annotations

import pytest

from elasticdl.cli.commands.chaos import Rate, parse_rate
from elasticdl.shared.errors import UserError


def test_a_rate_is_its_targets_and_a_mean_time() -> None:
    assert parse_rate("worker:5s") == Rate(targets=("worker",), mean_s=5.0)
    assert parse_rate("ps+master:0.5") == Rate(targets=("ps", "master"), mean_s=0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("foo:5s", "names no target with 'foo'"),
        ("ps+:5s", "names no target with ''"),
        ("worker:0s", "says '0s' where the mean time stands"),
        ("worker:-1s", "says '-1s' where the mean time stands"),
        ("worker:", "says '' where the mean time stands"),
        ("worker", "is not TARGET:SECONDS"),
    ],
)
def test_a_wrong_rate_is_told_which_part_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        parse_rate(text)
    assert f"--kill={text}" in str(refused.value) and refused.value.usage
