"""The comparison of jobs with ``fit`` runs jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.quality.cases import CASES
from benchmarks.quality.runs import RANGES, Runner


def test_one_job_of_the_comparison(tmp_path: Path) -> None:
    case = next(each for each in CASES if each.name == "multi_output")
    short = replace(case, records=600, epochs=1)
    result = Runner(folder=tmp_path).job(short, "sync", 2, seed=1)
    assert set(case.metrics) <= set(result.metrics)
    assert not (tmp_path / "jobs" / "multi_output-sync-2-seed-1").exists()


def test_two_asynchronous_workers_end_where_fit_ends(tmp_path: Path) -> None:
    case = next(each for each in CASES if each.name == "vae")
    least, greatest = json.loads(RANGES.read_text())[case.name]["loss"]
    found = Runner(folder=tmp_path).job(case, "async", 2, seed=1).metrics["loss"]
    width = greatest - least  # One seed is outside more often than the median that docs/quality.md compares.
    assert least - width <= found <= greatest + width
