"""The Python API: jobs from a script, with the results of the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

from elasticdl.api import ElasticDLError, Job, UserError, evaluate, predict, train

GUIDE = Path(__file__).parents[2] / "docs" / "python-api.md"


@pytest.fixture(autouse=True)
def _jobs_of_this_test(elastic: Elastic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(elastic.folder)
    monkeypatch.setenv("ELASTICDL_RUN_DIR", str(elastic.folder / "jobs"))
    write_data(elastic.folder)


def test_a_job_is_trained_and_its_model_evaluated(elastic: Elastic, capfd: pytest.CaptureFixture[str]) -> None:
    write_model(elastic.folder)
    job = train("model.py", "data", validation_data="data", num_epochs=2, num_workers=1, seed=5, output=Path("out"))
    shown = capfd.readouterr().out
    assert "Reading data" in shown
    assert f"{job.name}: succeeded" in shown
    assert job.report["audit"]["exact"] is True
    assert [len(values) for values in job.history.history.values()] == [2, 2, 2, 2]
    assert job.history.history["val_mse"][-1] == job.metrics["mse"]
    assert evaluate("model.py", "out", "data", shows=False).metrics == pytest.approx(job.metrics, rel=1e-5)
    predict("model.py", "out", "data", "predictions", shows=False)
    assert Path("predictions/_SUCCESS").exists()
    assert capfd.readouterr().out == ""


def test_the_example_of_the_guide_runs(elastic: Elastic) -> None:
    pytest.importorskip("pandas")
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert elastic.run("zoo", "data", "mnist", "mnist").exit_code == 0
    names: dict[str, Any] = {}
    exec(code, names)
    assert len(names["job"].history.history["val_accuracy"]) == 3
    assert Path("predictions/_SUCCESS").exists()


def test_a_job_is_scaled_and_stopped_while_it_runs(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(LINEAR, 0.2))
    job = train("model.py", "data", num_epochs=1000, num_workers=1, wait=False, shows=False)
    job.scale(workers=2)
    assert Job(job.name).state not in ("succeeded", "failed", "stopped")
    job.stop()
    with pytest.raises(ElasticDLError, match=f"the job {job.name} has been stopped"):
        job.wait(shows=False)
    assert job.logs("master")


def test_wrong_input_is_an_exception_with_the_message_of_the_command(elastic: Elastic) -> None:
    write_model(elastic.folder)
    with pytest.raises(UserError, match="--validation_data=nix does not exist"):
        train("model.py", "data", validation_data="nix", shows=False)
    write_model(elastic.folder, "raise ValueError('broken')\n")
    with pytest.raises(ElasticDLError, match=r"model\.py.*does not define|broken"):
        train("model.py", "data", shows=False)
    assert list((elastic.folder / "jobs").glob("*")) == []
