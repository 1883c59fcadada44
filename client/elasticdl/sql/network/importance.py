"""How much each column counts in a model's predictions: run as a program, because it loads TensorFlow.

    python -m elasticdl.sql.network.importance EXPORT FEATURES ROWS RESULT METHOD

``permutation``: the values of a column change places between rows, and the loss grows (Breiman, 2001). ``shap``:
Shapley values by sampling (Strumbelj and Kononenko, 2014): the change of a prediction by a column, on average over the
orders in which columns take the values of another row.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.sql.columns.features import PACKED, Features

REPEATS = 5
ORDERS = 16
_SEED = 7
_BATCH = 1_024
_EPSILON = 1e-7


class Model:
    """A trained model and rows for it.

    Args:
        values: input -> its values, the rows first.
    """

    def __init__(self, model: Any, features: Features, values: Mapping[str, Any]) -> None:
        self._model = model
        self._features = features
        self.values = values
        self.rows = len(next(iter(values.values())))
        self._packed = {name: place for place, name in enumerate(features.packed)}
        self.columns = list(dict.fromkeys(one.column for one in features.inputs))
        self.inputs_of = {
            column: [one.name for one in features.inputs if one.column == column] for column in self.columns
        }

    def predict(self, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """Predictions, (rows, outputs)."""
        import tensorflow as tf

        parts = []
        for start in range(0, self.rows, _BATCH):  # predict() would cast float64 to float32.
            tensors = {name: tf.constant(array[start : start + _BATCH]) for name, array in values.items()}
            parts.append(np.asarray(self._called(tensors), np.float64))
        found = np.concatenate(parts)
        return found.reshape(len(found), -1)

    @cached_property
    def _called(self) -> Any:
        """The model, compiled; its inputs take the types that it declares."""
        import tensorflow as tf

        types = {name: tensor.dtype for name, tensor in self._model.input.items()}

        def run(tensors: Mapping[str, Any]) -> Any:
            cast = {
                name: one if types[name] == "string" else tf.cast(one, types[name]) for name, one in tensors.items()
            }
            return self._model(cast, training=False)

        return tf.function(run, reduce_retracing=True)

    def exchanged(self, values: Mapping[str, Any], column: str, order: NDArray[np.int64]) -> dict[str, Any]:
        """Values in which a column has those of other rows."""
        names = {PACKED if name in self._packed else name for name in self.inputs_of[column]}
        return self.with_column(values, column, {name: values[name][order] for name in names})

    def with_column(self, values: Mapping[str, Any], column: str, source: Mapping[str, Any]) -> dict[str, Any]:
        """Values in which a column has those of ``source``."""
        changed = dict(values)
        for name in self.inputs_of[column]:
            if name not in self._packed:
                changed[name] = source[name]
                continue
            place = self._packed[name]
            changed[PACKED] = changed[PACKED].copy()
            changed[PACKED][:, place] = source[PACKED][:, place]
        return changed

    def loss(self, predictions: NDArray[np.float64], labels: NDArray[Any]) -> float:
        """Mean cross-entropy, or the squared error in units of the label's variance."""
        if self._features.task == "regression":
            return float(np.mean(np.square((predictions[:, 0] - labels) / self._features.label.scale)))
        numbers = labels.astype(np.int64)
        if predictions.shape[1] == 1:
            predictions = np.concatenate([1 - predictions, predictions], axis=1)
        right = predictions[np.arange(len(numbers)), numbers]
        return float(-np.mean(np.log(np.clip(right, _EPSILON, 1.0))))


def permutation(model: Model, labels: NDArray[Any] | None) -> dict[str, list[Any]]:
    """Of each column: how much the loss grows, or without labels, how much predictions change."""
    random = np.random.default_rng(_SEED)
    before = model.predict(model.values)
    base = 0.0 if labels is None else model.loss(before, labels)
    found: dict[str, list[Any]] = {"column": [], "importance": [], "deviation": []}
    for column in model.columns:
        grown = []
        for _ in range(REPEATS):
            after = model.predict(model.exchanged(model.values, column, random.permutation(model.rows)))
            change = float(np.mean(np.abs(after - before))) if labels is None else model.loss(after, labels) - base
            grown.append(change)
        found["column"].append(column)
        found["importance"].append(float(np.mean(grown)))
        found["deviation"].append(float(np.std(grown)))
    order = sorted(range(len(model.columns)), key=lambda place: -found["importance"][place])
    return {name: [values[place] for place in order] for name, values in found.items()}


def shapley(model: Model) -> dict[str, list[Any]]:
    """A column of Shapley values for each column, a row for each row; and the mean prediction.

    Of a classifier with several classes: of the probability of the class that it predicts.
    """
    random = np.random.default_rng(_SEED)
    whole = model.predict(model.values)
    target = whole.argmax(axis=1) if whole.shape[1] > 1 else np.zeros(model.rows, np.int64)
    places = np.arange(model.rows)
    totals = {column: np.zeros(model.rows) for column in model.columns}
    base = np.zeros(model.rows)
    for _ in range(ORDERS):
        others = random.integers(0, model.rows, model.rows)
        current = {name: array[others] for name, array in model.values.items()}
        before = model.predict(current)[places, target]
        base += before
        for column in (model.columns[place] for place in random.permutation(len(model.columns))):
            current = model.with_column(current, column, model.values)
            after = model.predict(current)[places, target]
            totals[column] += after - before
            before = after
    return {
        **{column: (total / ORDERS).tolist() for column, total in totals.items()},
        "base_value": (base / ORDERS).tolist(),
        "prediction": whole[places, target].tolist(),
    }


def _values(features: Features, table: Any) -> dict[str, Any]:
    """The inputs' values as arrays, lists padded."""
    found: dict[str, Any] = {}
    if features.packed:
        found[PACKED] = np.array(table.column(PACKED).to_pylist(), np.float32)
    for one in features.inputs:
        if one.name in features.packed:
            continue
        values = table.column(one.name).combine_chunks()
        match one.kind:
            case "text":
                found[one.name] = np.array(values.to_pylist(), object).reshape(-1, 1)
            case "texts":
                found[one.name] = _padded(values.to_pylist(), "", object)
            case "ids":
                found[one.name] = _padded(values.to_pylist(), 0, np.int64)
            case "vector":
                found[one.name] = np.array(values.to_pylist(), np.float32)
            case "id":
                found[one.name] = values.to_numpy(zero_copy_only=False).reshape(-1, 1)
            case _:
                found[one.name] = values.to_numpy(zero_copy_only=False).astype(np.float64).reshape(-1, 1)
    return found


def _padded(lists: Sequence[Sequence[Any]], filler: Any, dtype: Any) -> NDArray[Any]:
    width = max(1, *(len(each) for each in lists)) if lists else 1
    return np.array([[*each, *[filler] * (width - len(each))] for each in lists], dtype)


def main(export: Path, features_file: Path, rows: Path, result: Path, method: str) -> None:
    """Load the model, explain the rows, and write the table."""
    import keras
    import pyarrow as pa
    import pyarrow.parquet as pq

    import elasticdl.layers
    import elasticdl.sql.network.networks

    assert elasticdl.sql.network.networks  # Registers the layers of this package.
    features = Features.of_json(features_file.read_text("utf-8"))
    table = pq.read_table(rows)
    file = export / "model.keras"
    loaded = keras.saving.load_model(file, compile=False) if file.exists() else elasticdl.layers.load_model(str(export))
    model = Model(loaded, features, _values(features, table))
    labels = table.column(features.label.name).to_numpy() if features.label.name in table.column_names else None
    found = shapley(model) if method == "shap" else permutation(model, labels)
    pq.write_table(pa.table(found), result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
