"""A finished job that trains more epochs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.elastic import Elastic
from tests.e2e.models import write_data, write_model

WEIGHTS = """
import sys, keras
for variable in keras.saving.load_model(sys.argv[1]).weights:
    print(variable.numpy().tobytes().hex())
"""


def weights_of(model: Path) -> str:
    done = subprocess.run([sys.executable, "-c", WEIGHTS, str(model)], check=True, capture_output=True, text=True)
    return done.stdout


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of an epoch without its duration."""
    return {name: value for name, value in row.items() if name != "seconds"}


def test_a_finished_job_that_continues_has_the_model_of_a_longer_job(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=1000)
    write_data(elastic.folder, records=200, name="validation/test.csv", seed=4)
    flags = ("--model_def=model.py", "--training_data=data", "--validation_data=validation", "--num_workers=1")
    short = elastic.train(*flags, "--seed=5", "--num_epochs=1", "--output=short")
    refused = elastic.run("resume", short.job, "--num_epochs=1")
    assert refused.exit_code == 2 and "has 1 epoch, so --num_epochs=1 adds none" in refused.output
    continued = elastic.run("resume", short.job, "--num_epochs=2", "--output=continued")
    assert continued.exit_code == 0, continued.output
    report = continued.report
    assert report["audit"]["exact"] and report["audit"]["records"] == 2000
    rows = report["history"]["epochs"]
    assert [(row["epoch"], row["records"], row["validation"] is not None) for row in rows] == [
        (1, 1000, True),
        (2, 1000, True),
    ]
    assert [row["final"] for row in report["history"]["evaluations"]] == [False, True]
    long = elastic.train(*flags, "--seed=5", "--num_epochs=2", "--output=long")
    assert [comparable(row) for row in rows] == [comparable(row) for row in long.report["history"]["epochs"]]
    assert rows[1]["loss"] < rows[0]["loss"]
    assert weights_of(elastic.folder / "continued" / "model.keras") == weights_of(elastic.folder / "long/model.keras")
