"""Trains one case with TensorFlow's ParameterServerStrategy: asynchronous training with parameter servers, as jobs do.

    python -m benchmarks.quality.pss CASE DATA WORKERS SEED

Prints one line of JSON. ``model.fit`` of Keras 3 does not support the strategy, so a ``ClusterCoordinator`` schedules
one step per batch, as TensorFlow's guide shows. One ps and the workers are servers in this process. Batches, loss,
optimizer and evaluation are those of ``fit``: the next free worker gets the next batch, and each epoch has each record
once.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf
from benchmarks.quality.cases import CASES, Case
from benchmarks.quality.fit import batches, evaluate, load, records


def start_cluster(workers: int) -> tf.distribute.ParameterServerStrategy:
    """Start one ps and the workers in this process, on free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(1 + workers)]
        ps, *others = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    cluster = tf.train.ClusterSpec({"ps": [ps], "worker": others})
    # A step that waits for the ps holds a thread. With too few threads all steps wait.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(workers + 1, os.cpu_count() or 1))
    for job in cluster.jobs:
        for task in cluster.task_indices(job):
            tf.distribute.Server(cluster, job, task, protocol="grpc", config=config)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    return tf.distribute.ParameterServerStrategy(resolver)


def make_step(module: ModuleType, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> Any:
    """The function that a worker executes for each batch: it reads weights, computes gradients and applies them.

    It returns its staleness: how many updates of other workers came between its reads and its update.
    """
    strategy, weights = tf.distribute.get_strategy(), model.trainable_variables

    def update(features: Any, labels: Any) -> Any:
        before = tf.identity(optimizer.iterations)
        with tf.control_dependencies([before]), tf.GradientTape() as tape:
            loss = tf.reduce_mean(module.loss(labels, model(features, training=True))) + sum(model.losses)
        gradients = tape.gradient(loss, weights)
        with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
            staleness = tf.identity(optimizer.iterations) - before
        optimizer.apply(gradients, weights)
        return staleness

    @tf.function  # type: ignore[untyped-decorator]
    def step(features: Any, labels: Any) -> Any:
        return strategy.run(update, args=(features, labels))

    return step


def train(case: Case, folder: Path, workers: int, seed: int) -> dict[str, Any]:
    """Train once and evaluate."""
    keras.utils.set_random_seed(seed)
    module, strategy = load(case), start_cluster(workers)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = module.custom_model(), module.optimizer()
        optimizer.build(model.trainable_variables)
        # Keras reads the counter and assigns it: concurrent steps would lose some. TensorFlow adds atomically.
        optimizer.iterations.assign_add = optimizer.iterations.value.assign_add
        step = make_step(module, model, optimizer)
    started_s = time.monotonic()
    training = batches(module, records(folder / "train"), case.batch, "train").repeat(case.epochs)
    steps = [coordinator.schedule(step, args=batch) for batch in training]
    coordinator.join()
    train_s = time.monotonic() - started_s
    assert int(optimizer.iterations.numpy()) == len(steps), "each batch makes one update"
    keras.utils.set_random_seed(seed)  # A model's constants can be random too: a layer's output for fixed ids.
    trained = module.custom_model()
    trained.set_weights([weight.numpy() for weight in model.weights])
    metrics = evaluate(module, trained, batches(module, records(folder / "test"), case.batch, "evaluate"))
    metrics["staleness"] = sum(int(each.fetch()) for each in steps) / len(steps)
    return {"metrics": metrics, "train_s": round(train_s, 1)}


def main() -> None:
    """Train with one number of workers and one seed."""
    name, folder, workers, seed = sys.argv[1:]
    (case,) = [each for each in CASES if each.name == name]
    print(json.dumps(train(case, Path(folder), int(workers), int(seed))), flush=True)


if __name__ == "__main__":
    main()
