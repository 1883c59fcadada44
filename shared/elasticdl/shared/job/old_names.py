"""Lines of model files that were written for the first ElasticDL or for TensorFlow 2.0, and what to write instead.

Found without running the file. What ``elasticdl.worker.model.user.first_elasticdl`` stands in for is not among them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from elasticdl.shared.errors import UserError

FIRST = "elasticdl.python"
"""The package of the first ElasticDL."""
ADAPTED = (
    "Mode", "Embedding", "LearningRateScheduler", "SavedModelExporter", "BasePredictionOutputsProcessor",
    "PredictionOutputsProcessor", "default_logger", "log_utils",
)  # fmt: skip
"""Its names that a model file may still import."""
_PREPROCESSING = {
    "Hashing": "keras.layers.Hashing(num_bins)",
    "IndexLookup": "keras.layers.StringLookup(vocabulary=...)",
    "Discretization": "keras.layers.Discretization(bin_boundaries=...)",
    "Normalizer": "keras.layers.Normalization(mean=subtractor, variance=divisor**2)",
    "ConcatenateWithOffset": "one keras.layers.Embedding for each column, and keras.layers.Concatenate()",
    "SparseEmbedding": 'elasticdl.layers.Embedding(output_dim, combiner="sum")',
    "ToNumber": "a column of numbers: --column_types=COLUMN=float32",
    "ToRagged": "a column of lists, which is ragged",
    "ToSparse": "nothing: elasticdl.layers.Embedding takes dense, ragged and sparse ids",
    "RoundIdentity": "keras.ops.clip(keras.ops.round(x), 0, num_buckets - 1) in a layer",
    "LogRound": "keras.ops.round(keras.ops.log(x)) in a layer",
}
_OF_FIRST = {
    "embedding_column": 'elasticdl.layers.Embedding(output_dim, combiner="sum") on an input',
    "AbstractDataReader": "a class with the methods of docs/data.md, returned by custom_data_reader()",
    "MaxStepsStopping": "nothing: give --max_step",
}
_FEATURE_COLUMNS = (
    "a keras.Input for each column, and keras.layers.StringLookup, Hashing, Discretization, CategoryEncoding or "
    "Embedding on it (Keras 3 has no feature columns)"
)
_OPTIMIZERS = ("SGD", "Adam", "Adagrad", "RMSprop", "Ftrl", "Adadelta", "Adamax", "Nadam")
_SHOWN_MAX = 8

Found = Iterator[tuple[int, str, str]]
"""Line, what is there, and what to write instead."""


def refuse_old_names(path: Path, tree: ast.Module) -> None:
    """Refuse a file with lines that can't run any more.

    Raises:
        UserError: names each of them, and what to write instead.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for line, what, instead in sorted(set(_old_names(tree))):
        places.setdefault((what, instead), []).append(line)
    if not places:
        return
    (what, instead), lines = next(iter(places.items()))
    if len(places) == 1:
        raise UserError(f"{path}, {_lines(lines)}: there is no {what} any more", hint=f"Write {instead}.")
    shown = [f"{_lines(lines)}: {what}: write {instead}" for (what, instead), lines in places.items()]
    if len(shown) > _SHOWN_MAX:
        shown[_SHOWN_MAX:] = [f"and {len(shown) - _SHOWN_MAX} more"]
    raise UserError(
        f"{path} has {len(places)} names that are not there any more:\n  " + "\n  ".join(shown),
        hint="docs/migrate.md shows such files before and after.",
    )


def _lines(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"lines {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _old_names(tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                for alias in aliases:
                    yield from _imported(node.lineno, module, alias.name)
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield from _imported(node.lineno, alias.name, "")
            case ast.Attribute(attr="DenseFeatures"):
                yield node.lineno, "DenseFeatures", _FEATURE_COLUMNS
            case ast.Attribute(attr="feature_column", value=ast.Name()):
                yield node.lineno, "tf.feature_column", _FEATURE_COLUMNS
            case ast.Attribute(attr="estimator", value=ast.Name(id="tf")):
                yield node.lineno, "tf.estimator", "a Keras model"
            case ast.Attribute(attr="experimental", value=ast.Attribute(attr="layers")):
                yield node.lineno, "layers.experimental", "keras.layers, which has all of them"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), keywords=keywords):
                if name in _OPTIMIZERS and any(keyword.arg == "lr" for keyword in keywords):
                    yield node.lineno, f"{name}(lr=...)", "learning_rate="
            case _:
                pass


def _imported(line: int, module: str, name: str) -> Found:
    what = f"from {module} import {name}" if name else f"import {module}"
    root = module.partition(".")[0]
    if module == FIRST or module.startswith(f"{FIRST}."):
        if name not in ADAPTED:
            yield line, what, _OF_FIRST.get(name, "what docs/migrate.md says of it")
    elif root == "elasticdl_preprocessing":
        yield line, what, _PREPROCESSING.get(name, "layers of Keras")
    elif root == "elasticai_api":
        yield line, what, "a Keras model with compile(); elasticdl has no loops of your own"
    elif module.startswith("tensorflow.python.keras") or (module, name) == ("tensorflow.python", "keras"):
        better = (
            "from keras import ops, whose functions take tensors" if name == "backend" else f"from keras import {name}"
        )
        yield line, what, better if name else "import keras"
    elif name in ("feature_column", "DenseFeatures") and root == "tensorflow":
        yield line, what, _FEATURE_COLUMNS
