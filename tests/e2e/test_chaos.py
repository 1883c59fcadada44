"""Random kills of everything at once: the audit stays exact."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import SLOW, write_data, write_model

COUNTING = """


class Records(keras.metrics.Metric):
    def __init__(self, name="records"):
        super().__init__(name=name)
        self.counts = self.add_weight(shape=(300,), initializer="zeros", name="counts")

    def update_state(self, labels, predictions, sample_weight=None):
        self.counts.assign(self.counts + tf.cast(tf.shape(labels)[0], tf.float32))

    def result(self):
        return tf.reduce_min(self.counts) + tf.reduce_max(self.counts) * 1e6
"""
"""A metric with a large state, each value of which is the number of records."""


def test_a_job_under_random_kills_is_exact(elastic: Elastic) -> None:
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    report = elastic.folder / "report.json"
    flags = ["--model_def=model.py", "--training_data=data", "--minibatch_size=32", "--num_epochs=2"]
    with elastic.start("train", *flags, "--report", str(report)) as running:
        running.wait_for_progress()
        kills = [
            "--kill=worker:4s",
            "--kill=ps:6s",
            "--kill=master:5s",
            "--kill=nats-server:10s",
            "--kill=ps+master+all-worker:9s",
        ]
        chaos = elastic.run("chaos", elastic.job, *kills, "--duration=15", "--seed=1")
        assert chaos.exit_code == 0, chaos.output
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True, running.output
    assert facts["audit"]["repaired"] == 0
    assert sum(service["restarts"] for service in facts["services"].values()) >= 4, chaos.output
    assert 0.0 < facts["goodput"] <= 1.0


def test_killed_processes_lose_nothing_of_the_statistics(elastic: Elastic) -> None:
    metric = 'return {"records": Records()}'
    write_model(elastic.folder, SLOW.replace('return {"mse": keras.metrics.MeanSquaredError()}', metric) + COUNTING)
    write_data(elastic.folder, records=6_400)
    report = elastic.folder / "report.json"
    flags = ["--model_def=model.py", "--training_data=data", "--minibatch_size=16", "--num_minibatches_per_task=2"]
    with elastic.start("train", *flags, "--num_epochs=2", "--report", str(report)) as running:
        running.wait_for_progress()
        for pid in elastic.pids("worker-0", "worker-1", "ps-0", "master"):
            os.kill(pid, signal.SIGKILL)
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert sum(service["restarts"] for service in facts["services"].values()) >= 4
    epochs = facts["history"]["epochs"]
    assert [(epoch["batches"], epoch["records"]) for epoch in epochs] == [(400, 6_400)] * 2
    expected = pytest.approx(6_400 * (1e6 + 1), rel=1e-6)
    assert [epoch["metrics"]["records"] for epoch in epochs] == [expected] * 2
    verified = elastic.run("replay", elastic.job, "--verify")
    assert verified.exit_code == 0, verified.output


def test_rates_are_checked(elastic: Elastic) -> None:
    outcome = elastic.run("chaos", "nobody", "--kill=everything:5s")
    assert outcome.exit_code == 2
    assert "worker:5s" in outcome.output
