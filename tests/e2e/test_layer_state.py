"""Layer state of several workers, in the exported model, beside what one process would hold."""

from __future__ import annotations

import numpy as np
from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.models import LINEAR, write_model
from tests.e2e.test_train import weights_of

RECORDS, BATCH = 3000, 10

STATEFUL = (
    LINEAR.split("def custom_model")[0]
    + '''
from keras import layers, ops


@keras.saving.register_keras_serializable()
class Observer(layers.Layer):
    """Remembers what it has seen."""

    def build(self, shape):
        self.peak = self.add_weight(name="peak", shape=(3,), initializer="zeros", trainable=False)
        self.seen = self.add_weight(name="seen", shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.peak.assign(ops.maximum(self.peak, ops.max(x, axis=0)))
            self.seen.assign_add(ops.shape(x)[0])
        return x


def custom_model():
    inputs = keras.Input((3,))
    x = Observer(name="observer")(inputs)
    x = keras.Sequential([layers.BatchNormalization(momentum=0.1, name="norm")])(x)
    return keras.Model(inputs, layers.Dense(1)(x))


'''
    + "def loss"
    + LINEAR.split("def loss")[1]
)


def write_columns(elastic: Elastic) -> np.ndarray:
    """Write ``y = a + 2b - 3c``; return the features float64[records, 3], the same ten records in every batch."""
    values = np.round(np.random.default_rng(5).uniform(-1, 1, (BATCH, 3)), 3)
    records = np.tile(values, (RECORDS // BATCH, 1))
    lines = [f"{a},{b},{c},{round(a + 2 * b - 3 * c, 4)}" for a, b, c in records]
    write_lines(elastic.folder / "train.csv", ["a,b,c,y", *lines])
    return records


def exported(elastic: Elastic, layer: str) -> list[np.ndarray]:
    """The weights of a layer, in Keras' order, as float32[size]."""
    weights = weights_of(elastic.folder / "output" / "model.keras")
    return [np.frombuffer(data, np.float32) for name, data in sorted(weights.items()) if layer in name]


def test_state_of_several_workers_is_that_of_one_process(elastic: Elastic) -> None:
    write_model(elastic.folder, STATEFUL)
    records = write_columns(elastic)
    elastic.train(
        "--model_def=model.py",
        "--training_data=train.csv",
        f"--minibatch_size={BATCH}",
        "--num_workers=4",
        "--num_ps_pods=2",
        "--shuffle=none",
        "--num_epochs=2",
        "--output=output",
    )
    peak, seen = exported(elastic, "observer")
    np.testing.assert_allclose(peak, records.max(axis=0), rtol=1e-6)
    assert seen.view(np.int32) == 2 * RECORDS
    # Every batch has the same mean and variance, so the averages converge to them, in whatever order batches come.
    mean, variance = exported(elastic, "batch_normalization")[2:]
    np.testing.assert_allclose(mean, records.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, records.var(axis=0), rtol=1e-4)


DIVERGING = STATEFUL.replace(
    "self.seen.assign_add(ops.shape(x)[0])",
    "self.seen.assign_add(2**20)",
)


def test_state_that_leaves_its_range_fails_the_job_by_name(elastic: Elastic) -> None:
    write_model(elastic.folder, DIVERGING)
    write_columns(elastic)
    outcome = elastic.run(
        "train", "--model_def=model.py", "--training_data=train.csv", f"--minibatch_size={BATCH}", "--num_workers=1"
    )
    assert outcome.exit_code == 1
    assert "layer state observer/seen: 1 of its values would be out of range" in outcome.output


def test_state_that_workers_can_not_share_is_refused_at_the_start(elastic: Elastic) -> None:
    write_model(
        elastic.folder, STATEFUL.replace("ops.maximum(self.peak, ops.max(x, axis=0))", "ops.sin(self.peak + 1)")
    )
    write_columns(elastic)
    outcome = elastic.run("train", "--model_def=model.py", "--training_data=train.csv")
    assert outcome.exit_code == 1
    assert "layer 'observer' updates its state 'peak' in a way that several workers can't share" in outcome.output
