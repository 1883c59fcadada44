"""Compares exported files with the model that was trained, by their predictions for one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.process.logs import get_logger
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.keras_weights import LOAD_ERRORS, loading_problem

_log = get_logger()
_TOLERANCE = 1e-3
"""Difference that counts as none, relative to the largest prediction: operations are fused in another way."""
_HALF_TOLERANCE = 0.05
"""The same for mixed precision."""

Predictions = list[NDArray[Any]]


def compare_files(
    runner: ModelRunner, model: Any, computed: Predictions, files: Mapping[str, Callable[[], Any]]
) -> dict[str, str]:
    """Check that every file predicts what the trained model does.

    A model that draws random numbers when it predicts can't be compared.

    Args:
        computed: the trained model's predictions for the runner's example.
        files: name of each file -> a function that loads it and predicts for the example.

    Returns:
        Name of each file that can't be loaded, even with all that the model file defines -> why.
    """
    features = runner.example.features
    once, again = (flat(model(features, training=False)) for _ in range(2))
    if _difference(once, again):
        _log.info("exported files are not compared, because the model draws random numbers when it predicts")
        return {}
    is_half = any(layer.compute_dtype in ("float16", "bfloat16") for layer in model._flatten_layers())
    limit = _HALF_TOLERANCE if is_half else _TOLERANCE
    _check(runner.module.path, "the model made for the export", once, computed, limit)
    problems = {}
    for name, predict in files.items():
        try:
            predicted = flat(predict())
        except LOAD_ERRORS as error:
            problems[name] = loading_problem(error)
            _log.info("an exported file could not be loaded to compare it", file=name, reason=problems[name])
            continue
        _check(runner.module.path, name, predicted, computed, limit)
    return problems


def served(folder: Path, features: Any) -> Any:
    """The predictions of a SavedModel."""
    loaded = tf.saved_model.load(str(folder))  # Its variables are deleted with it.
    return loaded.serve(features)


def kept(runner: ModelRunner, file: Path, features: Any) -> Any:
    """The predictions of a ``.keras`` file, loaded with the classes and functions of the model file."""
    names = {name: value for name, value in vars(runner.module.module).items() if callable(value)}
    return keras.models.load_model(file, custom_objects=names, compile=False, safe_mode=False)(features, training=False)


def predictions_of(
    runner: ModelRunner, dense: Float32Array, rows_of: Callable[[str, NDArray[np.int64]], Float32Array]
) -> Predictions:
    """What the trained model predicts for the runner's example."""
    rows = {}
    for table, ids in runner.ids(runner.example, training=False).items():
        unique, inverse = np.unique(ids, return_inverse=True)
        rows[table] = rows_of(table, unique), inverse.astype(np.int32)
    return flat(runner.predict(runner.example, dense.copy(), rows))


def flat(outputs: Any) -> Predictions:
    """The arrays in a structure of tensors."""
    return [np.asarray(each) for each in tf.nest.flatten(outputs, expand_composites=True)]


def _check(path: Path, name: str, predicted: Predictions, computed: Predictions, limit: float) -> None:
    difference = _difference(predicted, computed)
    if difference > limit:
        one, other = (np.asarray(each[0]).reshape(-1)[:3].tolist() for each in (predicted, computed))
        raise UserError(
            f"{path}: {name} predicts {one} where the trained model predicts {other}, so it is not the trained model",
            hint="A file keeps variables and the configuration of layers. Other state of a layer is lost, or gets new "
            "values when the file is loaded. Give random generators a seed, and return such state from get_config().",
        )


def _difference(some: Predictions, others: Predictions) -> float:
    """The largest difference, relative to the largest value."""
    if [each.shape for each in some] != [each.shape for each in others]:
        return np.inf
    largest = 0.0
    for one, other in zip(some, others, strict=True):
        if one.dtype.kind in "OSU":
            largest = max(largest, float(np.any(one != other)))
            continue
        left, right = np.nan_to_num(one.astype(np.float64)), np.nan_to_num(other.astype(np.float64))
        scale = max(float(np.abs(right).max(initial=0.0)), 1e-6)
        largest = max(largest, float(np.abs(left - right).max(initial=0.0)) / scale)
    return largest
