"""The zoo's DeepFM in one process, the best way that TensorFlow allows: what a distributed job has to be compared with.

    python benchmarks/single_process.py DATA/train [--batches 400] [--threads 1]

Everything that a distributed job pays for is absent: the data lies in memory, variables are updated in place, and one
compiled function does a whole step. Rows are looked up once per distinct id and updated by TensorFlow's sparse Adagrad
(Keras' own Adagrad updates whole tables at every step, which is many times slower). Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

NUMBERS = [f"i{place}" for place in range(1, 14)]
CATEGORIES = [f"c{place}" for place in range(1, 27)]
IDS_PER_CATEGORY, WIDTH, HIDDEN = 25_000, 16, (400, 400, 400)
RATE, ACCUMULATOR, EPSILON = 0.02, 0.1, 1e-7
WARM_UP = 20
"""Batches that are not measured."""


class Model:
    """Variables and the compiled step of the same model as ``model_zoo/deepfm.py``, with Adagrad."""

    def __init__(self, tensorflow: Any) -> None:
        self._tf = tf = tensorflow
        table = len(CATEGORIES) * IDS_PER_CATEGORY
        shapes = _dense_shapes()
        initial = [tf.random.normal(shape, stddev=_glorot(shape), seed=1) for shape in shapes]
        self.dense = [tf.Variable(value) for value in initial]
        self.dense_slots = [tf.Variable(tf.fill(shape, ACCUMULATOR)) for shape in shapes]
        self.tables = [tf.Variable(tf.zeros([table, 1])), tf.Variable(tf.random.normal([table, WIDTH], stddev=0.01))]
        self.table_slots = [tf.Variable(tf.fill(each.shape, ACCUMULATOR)) for each in self.tables]
        self._offsets = tf.constant(np.arange(len(CATEGORIES), dtype=np.int64) * IDS_PER_CATEGORY)
        records = [
            tf.TensorSpec([None, len(NUMBERS)], tf.float32),
            tf.TensorSpec([None, len(CATEGORIES)], tf.int64),
            tf.TensorSpec([None, 1], tf.float32),
        ]
        self.step = tf.function(self._step, input_signature=records, autograph=False)

    def _step(self, numbers: Any, categories: Any, labels: Any) -> Any:
        tf = self._tf
        ids = tf.reshape(categories % IDS_PER_CATEGORY + self._offsets, [-1])
        unique, inverse = tf.unique(ids)
        rows = [tf.gather(table, unique) for table in self.tables]
        watched = [*self.dense, *rows]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            looked_up = [
                tf.reshape(tf.gather(values, inverse), [-1, len(CATEGORIES), values.shape[1]]) for values in rows
            ]
            scores = self._scores(numbers, *looked_up)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, scores))
        gradients = tape.gradient(loss, watched)
        count = len(self.dense)
        for variable, slot, gradient in zip(self.dense, self.dense_slots, gradients[:count], strict=True):
            tf.raw_ops.ResourceApplyAdagradV2(
                var=variable.handle, accum=slot.handle, lr=RATE, epsilon=EPSILON, grad=gradient
            )
        for table, slot, gradient in zip(self.tables, self.table_slots, gradients[count:], strict=True):
            summed = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, tf.size(unique))
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=table.handle, accum=slot.handle, lr=RATE, epsilon=EPSILON, grad=summed, indices=unique
            )
        return loss

    def _scores(self, numbers: Any, weights: Any, vectors: Any) -> Any:
        tf = self._tf
        number_weight, number_bias, *layers = self.dense
        linear = tf.reduce_sum(weights, axis=1) + numbers @ number_weight + number_bias
        pairs = tf.square(tf.reduce_sum(vectors, axis=1)) - tf.reduce_sum(tf.square(vectors), axis=1)
        factorised = 0.5 * tf.reduce_sum(pairs, axis=-1, keepdims=True)
        x = tf.concat([tf.reshape(vectors, [-1, len(CATEGORIES) * WIDTH]), numbers], axis=1)
        for kernel, bias in zip(layers[:-1:2], layers[1::2], strict=True):
            x = tf.nn.relu(tf.nn.bias_add(x @ kernel, bias))
        return linear + factorised + x @ layers[-1]


def _dense_shapes() -> list[tuple[int, ...]]:
    sizes = (len(CATEGORIES) * WIDTH + len(NUMBERS), *HIDDEN)
    shapes: list[tuple[int, ...]] = [(len(NUMBERS), 1), (1,)]
    for inputs, units in itertools.pairwise(sizes):
        shapes += [(inputs, units), (units,)]
    return [*shapes, (sizes[-1], 1)]


def _glorot(shape: tuple[int, ...]) -> float:
    return float(np.sqrt(2 / sum(shape))) if len(shape) > 1 else 0.0


def read(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """All records of a folder: numbers (records, 13), categories (records, 26), labels (records, 1)."""
    table = pq.read_table(folder)
    numbers = np.stack([table[name].to_numpy() for name in NUMBERS], axis=1)
    categories = np.stack([table[name].to_numpy() for name in CATEGORIES], axis=1)
    labels = table["label"].to_numpy()[:, None]
    return numbers.astype(np.float32), categories.astype(np.int64), labels.astype(np.float32)


def run(folder: Path, batches: int, threads: int, minibatch: int) -> dict[str, float]:
    """Train on a number of shuffled batches; seconds and rates of the training alone."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    numbers, categories, labels = read(folder)
    model = Model(tf)
    random = np.random.default_rng(1)
    order = random.permutation(len(labels))
    per_epoch = len(labels) // minibatch
    loss, started_s, started_cpu_s = 0.0, 0.0, 0.0
    for number in range(WARM_UP + batches):
        if number == WARM_UP:
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
        place = number % per_epoch * minibatch
        chosen = order[place : place + minibatch]
        loss = float(
            model.step(tf.constant(numbers[chosen]), tf.constant(categories[chosen]), tf.constant(labels[chosen]))
        )
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    records = batches * minibatch
    return {
        "threads": threads,
        "records": records,
        "loss": loss,
        "records_per_second": records / wall_s,
        "records_per_cpu_second": records / cpu_s,
        "cpu_ms_per_batch": 1e3 * cpu_s / batches,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minibatch_size", type=int, default=512)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.folder, arguments.batches, arguments.threads, arguments.minibatch_size)))


if __name__ == "__main__":
    main()
