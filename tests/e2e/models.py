"""Small models and data sets for end-to-end tests: each starts fast and fails in one particular way."""

from __future__ import annotations

import random
from pathlib import Path

from tests.e2e.elastic import write_lines

LINEAR = """
import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions[:, 0]))


def optimizer():
    return keras.optimizers.SGD(0.05)


def eval_metrics_fn():
    return {"mse": keras.metrics.MeanSquaredError()}


def feed_batch(records, mode, metadata):
    features = tf.stack([tf.cast(records[name], tf.float32) for name in ("a", "b", "c")], axis=1)
    return features, tf.cast(records["y"], tf.float32)
"""

FEED = (
    LINEAR.split("def feed_batch")[0]
    + """
def feed(dataset, mode, metadata):
    def parse(line):
        columns = tf.strings.to_number(tf.strings.split(line, ","))
        return columns[:3], columns[3]

    return dataset.map(parse)
"""
)


def write_model(folder: Path, text: str = LINEAR, name: str = "model.py") -> Path:
    """Write a model file."""
    path = folder / name
    path.write_text(text)
    return path


_TAKES_TIME = """

def _take_time(batch_s):
    import os, time
    folder = os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(os.path.join(folder, "remove_delay")):
        return
    time.sleep(batch_s)
    slow = os.path.join(folder, "slow_process")
    if os.path.exists(slow) and open(slow).read() == str(os.getpid()):
        time.sleep(4)
"""
_FEED = "def feed_batch(records, mode, metadata):\n"


def slowly(model: str, batch_s: float = 0.05) -> str:
    """A model file that takes ``batch_s`` longer for each batch, until a file ``remove_delay`` lies beside it.

    So a job lasts until its test has done what it wants to do, however slow the machine is, and no longer. The process
    whose id is in a file ``slow_process`` takes 4 s longer.
    """
    assert _FEED in model
    return model.replace(_FEED, _FEED + f"    tf.py_function(lambda: _take_time({batch_s}), [], [])\n") + _TAKES_TIME


SLOW = slowly(LINEAR)


def write_data(folder: Path, records: int = 2000, name: str = "data/train.csv", seed: int = 3) -> Path:
    """Write ``y = a + 2b - 3c`` as CSV."""
    random_numbers = random.Random(seed)
    lines = ["a,b,c,y"]
    for _ in range(records):
        a, b, c = (round(random_numbers.uniform(-1, 1), 4) for _ in range(3))
        lines.append(f"{a},{b},{c},{round(a + 2 * b - 3 * c, 4)}")
    return write_lines(folder / name, lines)
