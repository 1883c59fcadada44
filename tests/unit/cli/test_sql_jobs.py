"""What statements learn of their jobs from reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.sql.jobs import ended_job

LAST, BEST = {"loss": 0.7, "r2": 0.2}, {"loss": 0.5, "r2": None, "accuracy": 1}


@pytest.mark.parametrize(
    ("best", "metrics"),
    [
        (None, LAST),
        ({"evaluation": 1, "exported": False}, LAST),
        ({"evaluation": 1, "exported": True}, {"loss": 0.5, "accuracy": 1.0}),
    ],
)
def test_metrics_are_those_of_the_exported_model(
    tmp_path: Path, best: dict[str, Any] | None, metrics: dict[str, float]
) -> None:
    evaluations = [{"evaluation": 1, "metrics": BEST}, {"evaluation": 2, "metrics": LAST}]
    report = {"job": "m-1", "metrics": LAST, "best": best, "history": {"evaluations": evaluations}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert ended_job(tmp_path / "report.json").metrics == metrics
