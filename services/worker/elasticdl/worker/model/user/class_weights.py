"""``class_weight`` in the model file: the counterpart of ``fit(class_weight=...)``.

As in Keras, each record of the training data gets the weight of its class as its sample weight, and classes that are
not named get 1. Evaluations do not count them.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule

NAME = "class_weight"
_HINT = "It is a dict: the number of a class -> its weight, such as {0: 1.0, 1: 5.0}."


class ClassWeights:
    """Weights of classes. Raises ``UserError``: a class is no integer, or a weight is no finite number."""

    def __init__(self, weights: Mapping[Any, Any], path: Path) -> None:
        for name, weight in weights.items():
            if isinstance(name, bool) or not isinstance(name, numbers.Integral):
                raise UserError(f"{path}: {NAME} has the class {name!r}, which is no integer", hint=_HINT)
            if not isinstance(weight, numbers.Real) or not math.isfinite(weight):
                raise UserError(f"{path}: {NAME} gives class {name} the weight {weight!r}", hint=_HINT)
        self._path = path
        self._classes = [int(name) for name in weights]
        self._weights = [float(weight) for weight in weights.values()]

    @classmethod
    def of(cls, module: UserModule) -> ClassWeights | None:
        """Those of a model file; None: it defines none."""
        given = module.value(NAME)
        if callable(given):
            with user_code(module.path, f"{NAME}()"):
                given = given()
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise UserError(f"{module.path}: {NAME} is of type {type(given).__name__}", hint=_HINT)
        return cls(given, module.path) if given else None

    def sample_weights(self, labels: Any) -> Any:
        """The weight of each record.

        Args:
            labels: the tensor of the only output: classes, of shape (records,) or (records, 1), or a value for each
                class, of shape (records, classes), as in Keras.

        Returns:
            A float32 tensor of shape (records,).
        """
        if tf.nest.is_nested(labels):
            raise UserError(
                f"{self._path}: {NAME} needs a model with one output, and the feed gives several labels",
                hint="Have the feed give sample weights instead: (features, labels, sample_weights).",
            )
        if not isinstance(labels, tf.RaggedTensor):
            labels = tf.convert_to_tensor(labels)
        if isinstance(labels, tf.RaggedTensor) or labels.dtype == tf.string or labels.shape.rank not in (1, 2):
            raise UserError(
                f"{self._path}: {NAME} needs labels that are classes, and they are {labels.dtype.name} of shape "
                f"{labels.shape}",
                hint="Labels have shape (records,), (records, 1), or (records, classes) with one value for each class.",
            )
        if labels.dtype == tf.bool:
            labels = tf.cast(labels, tf.int32)
        classes = tf.cast(tf.round(labels if labels.shape.rank == 1 else labels[:, 0]), tf.int64)
        if labels.shape.rank == 2:
            classes = tf.where(tf.shape(labels)[1] > 1, tf.argmax(labels, axis=1), classes)
        named = tf.equal(classes[:, tf.newaxis], tf.constant(self._classes, tf.int64))
        found = tf.gather(tf.constant(self._weights, tf.float32), tf.argmax(tf.cast(named, tf.int32), axis=1))
        return tf.where(tf.reduce_any(named, axis=1), found, 1.0)
