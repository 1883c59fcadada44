"""Trains one case with ``model.fit`` in this process: what every job is compared with.

    python -m benchmarks.quality.fit CASE DATA SEED...

Prints one line of JSON per seed. ``fit`` gets batches of the model file's own feed, in another order in each epoch.
Results on the validation data are means over records, as those of a job.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf
from benchmarks.quality import data
from benchmarks.quality.cases import CASES, Case


def load(case: Case) -> ModuleType:
    """Import the model file, as a worker does."""
    spec = importlib.util.spec_from_file_location(case.name, case.model_file)
    assert spec is not None and spec.loader is not None, case.model_file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(folder: Path) -> Any:
    """All raw records of ``train`` or ``test``: a dict of columns, or a string tensor."""
    if (folder / "data.parquet").exists():
        return {name: tf.constant(values) for name, values in data.read(folder / "data.parquet").items()}
    files = [str(file) for file in sorted(folder.iterdir()) if file.suffix == ".tfrecord"]
    return tf.constant(list(tf.data.TFRecordDataset(files).as_numpy_iterator()))


def batches(module: ModuleType, raw: Any, batch: int, mode: str) -> tf.data.Dataset:
    """What the feed makes of each batch; in training the records come in another order in each epoch."""
    count = len(tf.nest.flatten(raw)[0])
    places = tf.data.Dataset.range(count)
    if mode == "train":
        places = places.shuffle(count)

    def fed(chosen: Any) -> Any:
        return module.feed_batch(tf.nest.map_structure(lambda column: tf.gather(column, chosen), raw), mode, None)

    return places.batch(batch).map(fed).prefetch(2)


def evaluate(module: ModuleType, model: keras.Model, batches: tf.data.Dataset) -> dict[str, float]:
    """Loss, with what layers add to it, and metrics of the validation data."""
    entries = _metrics(module.eval_metrics_fn())
    mean = keras.metrics.Mean()

    @tf.function  # type: ignore[untyped-decorator]
    def step(features: Any, labels: Any) -> Any:
        predictions = model(features, training=False)
        return predictions, tf.reduce_mean(module.loss(labels, predictions)) + sum(model.losses)

    for features, labels in batches:
        predictions, loss = step(features, labels)
        mean.update_state(loss, sample_weight=len(tf.nest.flatten(labels)[0]))
        for output, _, metric in entries:
            pair = (labels, predictions) if output is None else (labels[output], predictions[output])
            metric.update_state(*pair)
    results = {name if output is None else f"{output}_{name}": metric for output, name, metric in entries}
    return {"loss": float(mean.result())} | {name: float(metric.result()) for name, metric in results.items()}


def _metrics(given: dict[str, Any]) -> list[tuple[str | None, str, Any]]:
    """Output (None: the only one), name and metric."""
    found = []
    for name, metric in given.items():
        inner = [(name, *each) for each in metric.items()] if isinstance(metric, dict) else [(None, name, metric)]
        found += [(output, key, _as_metric(value)) for output, key, value in inner]
    return found


def _as_metric(value: Any) -> Any:
    return value if isinstance(value, keras.metrics.Metric) else keras.metrics.MeanMetricWrapper(value)


def train(case: Case, folder: Path, seed: int) -> dict[str, Any]:
    """Train once and evaluate."""
    started_s = time.monotonic()
    keras.utils.set_random_seed(seed)
    module = load(case)
    model = module.custom_model()
    optimizer = module.optimizer()
    model.compile(optimizer=optimizer, loss=getattr(module, "OUTPUT_LOSSES", module.loss))
    model.fit(batches(module, records(folder / "train"), case.batch, "train"), epochs=case.epochs, verbose=0)
    train_s = time.monotonic() - started_s
    metrics = evaluate(module, model, batches(module, records(folder / "test"), case.batch, "evaluate"))
    return {"seed": seed, "metrics": metrics, "train_s": round(train_s, 1)}


def main() -> None:
    """Train with each seed."""
    name, folder, *seeds = sys.argv[1:]
    (case,) = [each for each in CASES if each.name == name]
    for seed in seeds:
        print(json.dumps(train(case, Path(folder), int(seed))), flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
