"""A job that starts from the weights of another job."""

from __future__ import annotations

from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model
from tests.e2e.test_more_epochs import weights_of


def test_a_job_starts_from_the_weights_of_another_one(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=1000)
    flags = ("--model_def=model.py", "--training_data=data", "--num_workers=1", "--seed=5")
    first = elastic.train(*flags, "--num_ps_pods=2", "--output=first")
    missing = elastic.run("train", *flags, "--initial_model=missing")
    assert missing.exit_code == 1 and "there is no job 'missing'" in missing.output
    write_model(elastic.folder, LINEAR.replace("SGD(0.05)", "SGD(0.0)"))
    second = elastic.train(*flags, f"--initial_model={first.job}", "--output=second")
    assert f"Initial weights: job {first.job} at step " in second.output
    assert f"Loaded 2 of 2 variables from job {first.job} at step " in second.output
    assert second.report["audit"]["exact"]
    assert weights_of(elastic.folder / "second/model.keras") == weights_of(elastic.folder / "first/model.keras")
