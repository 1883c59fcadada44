"""Another number of ps while a job trains, and between two runs of it."""

from __future__ import annotations

import json
import signal

import pytest
from tests.e2e.elastic import Elastic, Outcome, check_exact, left_behind
from tests.e2e.models import slowly, write_data, write_model

EMBEDDING = """
import keras
import tensorflow as tf
import elasticdl.layers


def custom_model():
    inputs = keras.Input((3,))
    ids = keras.ops.cast(inputs * 500.0 + 500.0, "int64")
    rows = elasticdl.layers.Embedding(8)(ids)
    hidden = keras.layers.BatchNormalization()(keras.layers.Flatten()(rows))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([inputs, hidden])))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions[:, 0]))


def optimizer():
    return keras.optimizers.Adam(0.01)


def feed_batch(records, mode, metadata):
    features = tf.stack([tf.cast(records[name], tf.float32) for name in ("a", "b", "c")], axis=1)
    return features, tf.cast(records["y"], tf.float32)
"""


@pytest.fixture
def slow_job(elastic: Elastic) -> list[str]:
    """Flags of a job with a table, dense variables and statistics that takes its time."""
    write_model(elastic.folder, slowly(EMBEDDING))
    write_data(elastic.folder, records=16_000)
    return ["--model_def=model.py", "--training_data=data", "--minibatch_size=32", "--num_epochs=2"]


def scale(elastic: Elastic, ps: int) -> None:
    outcome = elastic.run("scale", elastic.job, f"--ps={ps}")
    assert outcome.exit_code == 0, outcome.output
    assert f"scaling to {ps} parameter server" in outcome.output


def test_the_number_of_ps_changes_while_a_job_trains(elastic: Elastic, slow_job: list[str]) -> None:
    report = elastic.folder / "report.json"
    flags = ["--num_ps_pods=1", "--checkpoint_steps=100", "--num_epochs=6", f"--report={report}"]
    with elastic.start("train", *slow_job, *flags) as running:
        running.wait_for_progress()
        scale(elastic, 2)
        running.wait_for(r"128 of 256 partitions of the model moved from ps-0 to ps-1")
        elastic.kill("ps-1")
        running.wait_for(r"ps-1 restored")
        elastic.kill("ps-0")
        running.wait_for(r"ps-0 restored")
        scale(elastic, 1)
        running.wait_for(r"128 of 256 partitions of the model moved from ps-1 to ps-0")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    outcome = Outcome(exit_code=0, output=running.output, report=json.loads(report.read_text()))
    check_exact(outcome)
    assert left_behind(elastic.folder) == []


@pytest.mark.thorough
def test_what_has_just_moved_survives_damage_of_where_it_was_saved(elastic: Elastic, slow_job: list[str]) -> None:
    with elastic.start("train", *slow_job, "--num_ps_pods=1", "--checkpoint_steps=100") as running:
        running.wait_for_progress()
        scale(elastic, 2)
        running.wait_for(r"128 of 256 partitions of the model moved from ps-0 to ps-1")
        for manifest in elastic.jobs.glob("*/storage/*/snapshots/ps-1/*/manifest"):
            manifest.write_bytes(manifest.read_bytes()[:-1])
        elastic.kill("ps-1")
        running.wait_for(r"A snapshot of ps-1 is damaged")
        running.wait_for(r"ps-1 restored")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    (report,) = (json.loads(path.read_text()) for path in elastic.jobs.glob("*/report.json"))
    outcome = Outcome(exit_code=0, output=running.output, report=report)
    check_exact(outcome)
    assert {row["ps"] for row in report["snapshots"]["damaged"]} == {"ps-1"}


def test_a_job_goes_on_with_more_and_with_fewer_ps(elastic: Elastic, slow_job: list[str]) -> None:
    with elastic.start("train", *slow_job, "--num_ps_pods=1") as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    with elastic.start("resume", elastic.job, "--num_ps_pods=3") as running:
        running.wait_for(r"partitions of the model moved from ps-0 to ps-1")
        running.wait_for(r"partitions of the model moved from ps-0 to ps-2")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job, "--num_ps_pods=2")
    assert resumed.exit_code == 0, resumed.output
    check_exact(resumed)
    assert "partitions of the model moved from ps-2" in resumed.output
