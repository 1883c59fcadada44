"""Bounded staleness: no gradient is later than asked, and a dead worker does not stop the others."""

from __future__ import annotations

import json

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

RECORDS = 400


@pytest.mark.parametrize("ps", [1, 2])
def test_no_gradient_is_later_than_the_bound(elastic: Elastic, ps: int) -> None:
    write_model(elastic.folder)
    data = write_data(elastic.folder, RECORDS)
    outcome = elastic.train(*_flags(data, 4), f"--num_ps_pods={ps}")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.report["audit"]["exact"] is True
    staleness = outcome.report["staleness"]
    assert staleness["batches"] == outcome.report["audit"]["batches"]
    assert (staleness["bound"], staleness["beyond_bound"]) == (1, 0)
    assert staleness["largest"] <= 1
    assert "99th percentile" in outcome.output


def test_a_killed_worker_does_not_stop_the_others(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(LINEAR))
    data = write_data(elastic.folder, RECORDS)
    report = elastic.folder / "report.json"
    with elastic.start("train", *_flags(data, 60), "--report", str(report)) as running:
        running.wait_for_progress()
        elastic.kill("worker-1")
        running.wait_for("worker-1 died")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    assert json.loads(report.read_text())["audit"]["exact"] is True


def _flags(data: object, epochs: int) -> list[str]:
    return [
        "--model_def=model.py",
        f"--training_data={data}",
        "--num_workers=3",
        "--max_staleness=1",
        "--minibatch_size=8",
        "--num_minibatches_per_task=4",
        f"--num_epochs={epochs}",
    ]
