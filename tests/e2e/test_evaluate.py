"""``elasticdl evaluate``: exported models and models of jobs, on any data, through kills."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import pytest
from tests.e2e.elastic import Elastic, Outcome, check_exact
from tests.e2e.models import LINEAR, slowly, write_data, write_model

TRAIN = ("--model_def=model.py", "--training_data=data", "--num_workers=1", "--seed=5")
EVALUATE = ("--model_def=model.py", "--validation_data=other")
RECORDS = 1500


def evaluated(outcome: Outcome) -> dict[str, float]:
    """The metrics of an evaluation that counted every record once."""
    assert outcome.exit_code == 0, outcome.output
    check_exact(outcome)
    assert outcome.report["kind"] == "evaluate"
    assert outcome.report["audit"]["records"] == RECORDS
    metrics: dict[str, float] = outcome.report["metrics"]
    return metrics


def test_an_exported_model_and_a_job_have_the_metrics_of_the_training_job_and_of_keras(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    data = write_data(elastic.folder, RECORDS, "other/data.csv", seed=4)
    trained = elastic.train(*TRAIN, "--validation_data=other", "--output=out")
    expected = trained.report["metrics"]
    exported = evaluated(elastic.run("evaluate", "--model=out", *EVALUATE, "--minibatch_size=100"))
    assert exported == pytest.approx(expected, rel=1e-5)
    from_job = evaluated(elastic.run("evaluate", f"--checkpoint_dir_for_init={trained.job}", *EVALUATE))
    assert from_job == pytest.approx(expected, rel=1e-5)
    model: Any = keras.saving.load_model(elastic.folder / "out/model.keras")
    rows = np.loadtxt(data, delimiter=",", skiprows=1, dtype=np.float32)
    model.compile(loss="mse", metrics=[keras.metrics.MeanSquaredError(name="mse")])
    assert exported == pytest.approx(model.evaluate(rows[:, :3], rows[:, 3], verbose=0, return_dict=True), rel=1e-5)


@pytest.mark.thorough
def test_records_count_once_when_processes_are_killed(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    write_data(elastic.folder, RECORDS, "other/data.csv", seed=4)
    trained = elastic.train(*TRAIN, "--validation_data=other", "--output=out", "--num_ps_pods=2")
    write_model(elastic.folder, slowly(LINEAR, 1.0))
    flags = ("--model=out", *EVALUATE, "--num_workers=2", "--minibatch_size=10", "--num_minibatches_per_task=2")
    for folder in list(elastic.jobs.iterdir()):
        folder.rename(elastic.folder / folder.name)  # ``kill`` wants the evaluation to be the only job.
    report = elastic.folder / "report.json"
    with elastic.start("evaluate", *flags, f"--report={report}") as running:
        running.wait_for(r"evaluating  batch [1-9]")
        for pod, message in (("worker-0", "worker-0 died"), ("master", "new master"), ("ps-0", "ps-0 died")):
            elastic.kill(pod)
            running.wait_for(message)
        elastic.remove_delay()
        assert running.wait() == 0, running.output
        outcome = Outcome(exit_code=0, output=running.output, report=json.loads(report.read_text()))
    assert evaluated(outcome) == pytest.approx(trained.report["metrics"], rel=1e-5)


def test_what_does_not_fit_is_refused_with_one_sentence(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder)
    trained = elastic.train(*TRAIN)
    missing = elastic.run("evaluate", "--model=out/model.keras", "--model_def=model.py", "--validation_data=data")
    assert missing.exit_code == 2 and "--model=out/model.keras does not exist" in missing.output
    write_model(
        elastic.folder, LINEAR.replace("Dense(1)(inputs)", "Dense(1)(keras.layers.Dense(3, name='more')(inputs))")
    )
    other = elastic.run("evaluate", f"--model={trained.job}", "--model_def=model.py", "--validation_data=data")
    assert other.exit_code == 1
    assert f"the model file does not fit the model of job {trained.job}" in other.output
    write_model(
        elastic.folder, LINEAR.replace('return features, tf.cast(records["y"], tf.float32)', "return features, None")
    )
    unlabelled = elastic.run("evaluate", f"--model={trained.job}", "--model_def=model.py", "--validation_data=data")
    assert unlabelled.exit_code == 1
    assert "the feed gives no labels in mode 'evaluate', so there is no loss to evaluate" in unlabelled.output
