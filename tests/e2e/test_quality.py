"""The comparison of jobs with ``fit`` runs jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.quality.cases import CASES
from benchmarks.quality.runs import Runner


def test_one_job_of_the_comparison(tmp_path: Path) -> None:
    case = next(each for each in CASES if each.name == "multi_output")
    short = replace(case, records=600, epochs=1)
    result = Runner(folder=tmp_path).job(short, "sync", 2, seed=1)
    assert set(case.metrics) <= set(result.metrics)
    assert not (tmp_path / "jobs" / "multi_output-sync-2-seed-1").exists()
