"""Trains a model by Keras' compiled train function. Started by ``benchmarks/strategies.py``.

    python benchmarks/peers/keras_loop.py KIND DATA BATCH COUNTER [RANK PORT PORT...]

DATA is an .npz file with the arrays ``x`` and ``label``; they stay in memory. With a rank and the ports of all workers
it is a worker of ``MultiWorkerMirroredStrategy``. COUNTER is a file that gets the number of steps after each step.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.counter import Counter


def main() -> None:
    kind, data, batch, counter, *cluster = sys.argv[1:]
    if cluster:
        workers = [f"127.0.0.1:{port}" for port in cluster[1:]]
        task = {"type": "worker", "index": int(cluster[0])}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    import tensorflow as tf
    from benchmarks.peers.keras_models import custom_model

    strategy = tf.distribute.MultiWorkerMirroredStrategy() if cluster else None
    arrays = np.load(data)
    records = tf.data.Dataset.from_tensor_slices((arrays["x"], arrays["label"]))
    own = records.shuffle(4 * int(batch), seed=1).repeat().batch(int(batch), drop_remainder=True).prefetch(2)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = custom_model(kind)
    batches = strategy.distribute_datasets_from_function(lambda _: own) if strategy else own
    model.make_train_function()
    # Keras' own function reduces the loss in a way that MultiWorkerMirroredStrategy refuses.
    step = tf.function(distributed_step(strategy, model)) if strategy else model.train_function
    iterator, counted = iter(batches), Counter(Path(counter))
    while True:
        step(iterator)
        counted.add()


def distributed_step(strategy: Any, model: Any) -> Callable[[Iterator[Any]], None]:
    """A training step on all workers."""

    def step(iterator: Iterator[Any]) -> None:
        strategy.run(model.train_step, (next(iterator),))

    return step


if __name__ == "__main__":
    main()
