"""Jobs with AllreduceStrategy whose tables are on ps: both ledgers have every batch once, whichever process dies."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import signal
import time
from typing import Any

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.test_allreduce import FLAGS, RECORDS, ROUNDS, leader

MODEL = """
import keras
import tensorflow as tf
import elasticdl.layers


def custom_model():
    inputs = keras.Input((3,))
    ids = keras.ops.cast(inputs * 10.0 + 10.0, "int64")
    rows = elasticdl.layers.Embedding(4, input_dim=21, embeddings_initializer="zeros")(ids)
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
    both = keras.layers.Concatenate()([inputs, keras.layers.Flatten()(rows)])
    hidden = keras.layers.Dense(8, activation="tanh", kernel_initializer=first)(both)
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=second)(hidden))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions[:, 0]))


def optimizer():
    return keras.optimizers.Adam(0.01)


def eval_metrics_fn():
    return {"mse": keras.metrics.MeanSquaredError()}


def feed_batch(records, mode, metadata):
    features = tf.stack([tf.cast(records[name], tf.float32) for name in ("a", "b", "c")], axis=1)
    return features, tf.cast(records["y"], tf.float32)
"""


def train(elastic: Elastic, *flags: str, batch_s: float = 0.3) -> list[str]:
    """Write model and data; returns the arguments of the job."""
    write_model(elastic.folder, slowly(MODEL, batch_s=batch_s))
    data = write_data(elastic.folder, RECORDS)
    return ["train", *FLAGS, f"--training_data={data}", "--num_workers=2", "--num_ps_pods=1", *flags]


def check_audit(facts: dict[str, Any]) -> None:
    """Every ledger, of the replicas and of each ps, has every batch once."""
    audit = facts["audit"]
    assert (audit["exact"], audit["repaired"], audit["replicas"]) == (True, 0, [])


@pytest.mark.parametrize("killed", ["nothing", "member", "leader"])
def test_the_model_is_that_of_one_process_whichever_worker_dies(elastic: Elastic, killed: str) -> None:
    report = elastic.folder / "report.json"
    with elastic.start(*train(elastic, f"--report={report}")) as running:
        running.wait_for_progress()
        if killed != "nothing":
            first = leader(elastic)
            pod = {"member": "worker-1" if first == "worker-0" else "worker-0", "leader": first}[killed]
            elastic.kill(pod)
            running.wait_for(f"{pod} died")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    check_audit(facts)
    assert facts["audit"]["groups"] == 2
    ROUNDS.check_model(elastic.folder, elastic.folder / "data/train.csv")


@pytest.mark.parametrize("killed", ["ps-1", pytest.param("master", marks=pytest.mark.thorough)])
def test_every_ledger_is_exact_when_a_ps_or_the_master_dies(elastic: Elastic, killed: str) -> None:
    report = elastic.folder / "report.json"
    with elastic.start(*train(elastic, f"--report={report}", "--num_ps_pods=2")) as running:
        running.wait_for_progress()
        elastic.kill(killed)
        running.wait_for(f"{killed} died|{killed} was killed")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    check_audit(facts)
    assert facts["audit"]["groups"] >= 3


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_ledger_is_exact_when_processes_die_at_random(elastic: Elastic, seed: int) -> None:
    chance = random.Random(seed)
    with elastic.start(*train(elastic, "--num_ps_pods=2", "--num_workers=3", batch_s=0.5)) as running:
        running.wait_for_progress()
        for _ in range(5):
            pod = chance.choice(["worker-0", "worker-1", "worker-2", "ps-1", "ps-2", "master"])
            with contextlib.suppress(AssertionError):  # It is being started.
                elastic.kill(pod)
            time.sleep(chance.uniform(0.5, 4))
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    check_audit(json.loads((elastic.jobs / elastic.job / "report.json").read_text()))


@pytest.mark.thorough
def test_deepfm_is_that_of_a_synchronous_job_with_ps(elastic: Elastic) -> None:
    made = elastic.run("zoo", "data", "deepfm", "clicks", "--records=20000")
    assert made.exit_code == 0, made.output
    flags = ("--model_def=deepfm.custom_model", "--training_data=clicks/train", "--validation_data=clicks/test")
    sizes = ("--minibatch_size=256", "--num_workers=2", "--num_ps_pods=1", "--seed=3")
    found = []
    for strategy in ("--distribution_strategy=AllreduceStrategy", "--use_async=false"):
        outcome = elastic.run("train", *flags, *sizes, strategy)
        assert outcome.exit_code == 0, outcome.output
        found.append(outcome.report["metrics"])
        shutil.rmtree(elastic.jobs)
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_a_job_continues_after_a_stop_and_evaluates_what_it_exports(elastic: Elastic) -> None:
    report = elastic.folder / "report.json"
    arguments = train(elastic)
    with elastic.start(*arguments, f"--validation_data={elastic.folder}/data/train.csv") as running:
        running.wait_for_progress()
        refused = elastic.run("scale", elastic.job, "--ps=2")
        assert refused.exit_code == 2
        assert "can't be changed" in refused.output
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
    elastic.remove_delay()
    resumed = elastic.run("resume", elastic.job, f"--report={report}")
    assert resumed.exit_code == 0, resumed.output
    facts = json.loads(report.read_text())
    check_audit(facts)
    evaluated = elastic.run(
        "evaluate", "--model_def=model.py", "--model=output", "--validation_data=data", f"--report={report}"
    )
    assert evaluated.exit_code == 0, evaluated.output
    assert json.loads(report.read_text())["metrics"]["mse"] == pytest.approx(facts["metrics"]["mse"], rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "or --num_ps_pods=1, which works with --platform=local"),
        (("--num_ps_pods=1", "--initial_model=other"), "--initial_model=other can't be combined with --num_ps_pods"),
        (("--num_ps_pods=1", "--platform=kubernetes"), "--platform=kubernetes can't be combined with --num_ps_pods"),
    ],
)
def test_what_a_ring_with_tables_can_not_do_is_refused_by_name(
    elastic: Elastic, flags: tuple[str, ...], says: str
) -> None:
    write_model(elastic.folder, MODEL)
    data = write_data(elastic.folder, records=64)
    outcome = elastic.run("train", *FLAGS, f"--training_data={data}", *flags)
    assert outcome.exit_code in (1, 2)
    assert says in re.sub(r"\s+", " ", outcome.output)


def test_ps_that_would_have_nothing_are_refused(elastic: Elastic) -> None:
    write_model(elastic.folder)
    data = write_data(elastic.folder, records=64)
    outcome = elastic.run("train", *FLAGS, f"--training_data={data}", "--num_ps_pods=1")
    assert outcome.exit_code == 1
    assert "the model has no tables" in re.sub(r"\s+", " ", outcome.output)
