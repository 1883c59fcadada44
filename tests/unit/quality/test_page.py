"""The page with the comparison of jobs and ``fit``."""

from __future__ import annotations

import dataclasses

from benchmarks.quality.cases import CASES
from benchmarks.quality.page import page
from benchmarks.quality.results import ASYNC, FIT, PSS, RING, SYNC, Cell, Result
from benchmarks.quality.rings import section, with_section
from benchmarks.quality.setting import Setting

SETTING = Setting(machine="2 cores", date="2026-01-02", wall_s=3000)
CASE = next(case for case in CASES if case.name == "bidirectional_lstm")


def result(mode: str, workers: int, seed: int, loss: float, accuracy: float) -> Result:
    cell = Cell(case=CASE.name, mode=mode, workers=workers, seed=seed)
    return Result(cell=cell, metrics={"loss": loss, "accuracy": accuracy}, train_s=1, wall_s=2)


RESULTS = [
    *(result(FIT, 0, seed, 0.30 + seed / 100, 0.86) for seed in range(1, 6)),
    result(ASYNC, 1, 1, 0.32, 0.86),
    result(ASYNC, 6, 1, 0.59, 0.66),
    result(ASYNC, 6, 2, 0.61, 0.67),
    result(SYNC, 6, 1, 0.31, 0.87),
]


def test_a_value_outside_the_range_of_fit_is_marked() -> None:
    text = page(RESULTS, [CASE], SETTING)
    tables = text.partition("## Asynchronous")[2]
    assert "| loss | 0.33 (0.31 to 0.35) | 0.32 | - | **0.6** ▼ |" in tables
    assert "| accuracy | 0.86 (0.86 to 0.86) | 0.86 | - | **0.665** ▼ |" in tables
    assert "| loss | 0.33 (0.31 to 0.35) | - | - | 0.31 |" in tables


def test_the_summary_names_the_models_that_are_worse() -> None:
    text = page(RESULTS, [CASE], SETTING)
    assert "- Asynchronous (the default), 1 worker: 1 of 1 models are as good as `fit`." in text
    assert (
        "- Asynchronous (the default), 6 workers: 0 of 1 models are as good as `fit`. Worse: Bidirectional LSTM" in text
    )
    assert "- Synchronous (`--use_async=false`), 6 workers: 1 of 1 models are as good as `fit`." in text


def test_the_page_says_how_it_was_measured() -> None:
    text = page(RESULTS, [CASE], SETTING)
    assert "5 of `fit`, and jobs: 1 with 1 worker, 0 with 2 workers, 1 to 2 with 6 workers" in text
    assert "Machine: 2 cores. Date: 2026-01-02. All runs together took 50 minutes." in text


def strategy(workers: int, seed: int, loss: float, accuracy: float) -> Result:
    found = result(PSS, workers, seed, loss, accuracy)
    return dataclasses.replace(found, metrics=found.metrics | {"staleness": workers - 1.25})


def test_jobs_are_compared_with_parameter_server_strategy() -> None:
    strategies = [strategy(1, 1, 0.31, 0.86), strategy(6, 1, 0.50, 0.70), strategy(6, 2, 0.54, 0.60)]
    text = page([*RESULTS, *strategies], [CASE], SETTING)
    beside = "- Asynchronous beside TensorFlow's ParameterServerStrategy"
    # 0.32 is in the range of fit's seeds; 0.6 is worse than all seeds of both.
    assert (
        f"{beside}, 1 worker: 0 of 1 models are at least as good. Less good by no more than seeds differ: Bid" in text
    )
    assert f"{beside}, 6 workers: 0 of 1 models are at least as good. Worse: Bidirectional LSTM, texts." in text
    assert f"{beside}, 2 workers" not in text
    section = text.partition("## Beside TensorFlow's")[2]
    assert "| loss | 0.32 / 0.31 | - | **0.6 / 0.52** ▼ |" in section
    assert "|  | accuracy | 0.86 / 0.86 | - | 0.665 / 0.65 |" in section
    assert "4.8 with 6 workers" in section
    assert "5 of `fit`, and jobs: 1 with 1 worker, 0 with 2 workers, 1 to 2 with 6 workers" in text
    assert "ParameterServerStrategy" not in page(RESULTS, [CASE], SETTING)


def test_rings_have_a_section_beside_the_ranges_of_earlier_runs() -> None:
    rings = [result(RING, 2, 1, 0.36, 0.86), result(RING, 6, 1, 0.31, 0.87), result(RING, 6, 2, 0.33, 0.87)]
    ranges = {CASE.name: {"loss": (0.31, 0.35), "accuracy": (0.86, 0.86)}}
    text = section([*RESULTS, *rings], CASES, ranges, SETTING)
    assert "- AllReduce, 2 workers: 0 of 1 models are as good as `fit`. Worse: Bidirectional LSTM, texts." in text
    assert "- AllReduce, 6 workers: 1 of 1 models are as good as `fit`." in text
    assert "| loss | 0.31 to 0.35 | **0.36** ▼ | 0.32 |" in text
    assert "Seeds: 1 with 2 workers, 2 with 6 workers." in text
    whole = page(RESULTS, [CASE], SETTING)
    once = with_section(with_section(whole, "## AllReduce\n\nold"), text)
    assert once.replace(text + "\n\n", "") == whole
    assert once.index(text) < once.index("## How this was measured")


def test_every_case_can_be_shared_by_six_workers_without_a_rest() -> None:
    for case in CASES:
        assert case.batch % 6 == 0, case.name
        if case.columns is not None:
            assert case.records % (case.batch * case.per_task) == 0, case.name
            assert case.model_file.exists(), case.name
