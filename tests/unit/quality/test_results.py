"""What the quality benchmark makes of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.quality.results import (
    ASYNC,
    FIT,
    SYNC,
    Cell,
    Result,
    ResultFile,
    Summary,
    summarize,
    wanted,
    write_ranges,
)


def result(mode: str = FIT, workers: int = 0, seed: int = 1, **metrics: float) -> Result:
    cell = Cell(case="gru", mode=mode, workers=workers, seed=seed)
    return Result(cell=cell, metrics=metrics, train_s=1.5, wall_s=9.5)


@pytest.mark.parametrize(
    ("metric", "job", "is_worse"),
    [
        ("loss", 0.31, True),
        ("loss", 0.29, False),
        ("loss", 0.01, False),
        ("loss", 0.3000001, False),
        ("accuracy", 0.09, True),
        ("accuracy", 0.99, False),
        ("maximum", 0.31, True),
        ("maximum", 0.09, True),
    ],
)
def test_a_job_is_worse_than_the_worst_seed_of_fit(metric: str, job: float, is_worse: bool) -> None:
    fit = Summary(values=(0.2, 0.1, 0.3))
    assert Summary(values=(job,)).is_worse_than(fit, metric) is is_worse


def test_the_median_of_a_job_counts() -> None:
    fit = Summary(values=(0.2, 0.3))
    assert not Summary(values=(0.25, 9.0, 0.1)).is_worse_than(fit, "loss")


@pytest.mark.parametrize(
    ("metric", "other", "is_worse"),
    [("loss", 0.29, True), ("loss", 0.3, False), ("auc", 0.29, False), ("auc", 0.4, True)],
)
def test_medians_are_compared(metric: str, other: float, is_worse: bool) -> None:
    job = Summary(values=(0.2, 0.3, 0.9))
    assert job.is_worse_than_median(Summary(values=(other,)), metric) is is_worse


def test_a_configuration_is_a_mode_with_a_number_of_workers() -> None:
    results = [result(ASYNC, 2, 1, loss=1), result(ASYNC, 2, 2, loss=3), result(ASYNC, 6, 1, loss=9), result(loss=7)]
    found = summarize(results, "gru", ASYNC, 2, "loss")
    assert found is not None
    assert (found.median, found.least, found.greatest) == (2, 1, 3)
    assert summarize(results, "gru", SYNC, 2, "loss") is None


def test_results_are_read_again_and_the_last_of_a_cell_counts(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "some" / "results.jsonl")
    file.add(result(loss=1))
    file.add(result(seed=2, loss=2))
    file.add(result(loss=3))
    again = ResultFile(tmp_path / "some" / "results.jsonl")
    assert again.results == [result(loss=3), result(seed=2, loss=2)]
    assert Cell(case="gru", mode=FIT, workers=0, seed=2) in again
    assert Cell(case="gru", mode=FIT, workers=0, seed=3) not in again


def test_every_configuration_runs_once_before_any_runs_with_a_second_seed() -> None:
    cells = wanted(["a", "b"], [FIT, ASYNC], {1: 1, 2: 2}, 2)
    assert [(cell.case, cell.mode, cell.workers, cell.seed) for cell in cells] == [
        ("a", FIT, 0, 1),
        ("a", FIT, 0, 2),
        ("b", FIT, 0, 1),
        ("b", FIT, 0, 2),
        ("a", ASYNC, 1, 1),
        ("a", ASYNC, 2, 1),
        ("b", ASYNC, 1, 1),
        ("b", ASYNC, 2, 1),
        ("a", ASYNC, 2, 2),
        ("b", ASYNC, 2, 2),
    ]


def test_the_ranges_are_those_of_fit(tmp_path: Path) -> None:
    write_ranges(
        [result(loss=2), result(seed=2, loss=1), result(seed=3, loss=3), result(ASYNC, 2, loss=9)], tmp_path / "f"
    )
    assert json.loads((tmp_path / "f").read_text()) == {"gru": {"loss": [1, 3]}}
