"""``elasticdl fleet replay``, on recorded fleets."""

from __future__ import annotations

import json

import pytest
from tests.fleet.record import FLEETS

from elasticdl.cli.commands.fleet.replay import replay
from elasticdl.shared.errors import UserError

TWO_JOBS = FLEETS / "two-jobs.fleet"


def test_the_end_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(TWO_JOBS, "", check=True, as_json=False)
    text = capsys.readouterr().out
    assert "3 nodes" in text
    assert "job-01, " not in text
    assert "its share: no room without taking from a job with less" in text
    assert "Re-ran 16 decisions: all are the same." in text


def test_a_point_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(TWO_JOBS, "+20s", check=False, as_json=True)
    by_time = json.loads(capsys.readouterr().out)
    assert [each["job"] for each in by_time["targets"]] == ["job-00"]
    assert replay(TWO_JOBS, str(by_time["decision"]), check=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == by_time
    assert replay(TWO_JOBS, "#5", check=False, as_json=True)
    second = json.loads(capsys.readouterr().out)
    assert [each["target"]["job"] for each in second["decided"]] == ["job-00", "job-00", "job-01"]


@pytest.mark.parametrize("point", ["99", "first WorkerLost", "soon"])
def test_points_that_a_log_lacks(point: str) -> None:
    with pytest.raises(UserError, match="--until"):
        replay(TWO_JOBS, point, check=False, as_json=False)
