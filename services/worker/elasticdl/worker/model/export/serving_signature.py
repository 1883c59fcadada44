"""The inputs of an exported model: those of ``keras.Input`` where it has them, as with ``model.export()`` of Keras."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional  # No public name: ``keras.Model`` is also a subclassed model.

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")
"""What TensorFlow takes for a name."""


def signature_of(model: Any) -> Any | None:
    """The types that the exported model takes; None: those of the feed, because the model has no dense input layers."""
    functional = _functional(model)
    if functional is None:
        return None
    # As in Keras, an input with a batch size of its own takes batches of any size.
    return keras.tree.map_structure(
        lambda one: _with_name(tf.TensorSpec((None, *one.shape[1:]), one.dtype), one.name), functional._inputs_struct
    )


def as_inputs(model: Any, features: Any) -> Any:
    """What the feed gives, as the exported model takes it: as in Keras, an axis of size 1 may be missing."""
    functional = _functional(model)
    if functional is None:
        return features
    return keras.tree.pack_sequence_as(functional._inputs_struct, functional._standardize_inputs(features))


def named(model: Any, features: Any) -> Any:
    """The types that the feed gives, with the names under which clients of the served model give them."""
    if isinstance(features, Mapping):
        return {key: _with_name(spec, str(key)) for key, spec in features.items()}
    inputs = getattr(model, "inputs", None) or []
    if isinstance(features, (tuple, list)) and len(inputs) == len(features):
        return type(features)(_with_name(spec, one.name) for spec, one in zip(features, inputs, strict=True))
    if len(inputs) == 1:
        return _with_name(features, inputs[0].name)
    return features


def _functional(model: Any) -> Any | None:
    """The graph of layers that has the model's inputs; None if absent, or if they are sparse, ragged or optional."""
    functional = model._functional if isinstance(model, keras.Sequential) else model
    if not isinstance(functional, Functional):
        return None
    inputs = keras.tree.flatten(functional._inputs_struct)
    is_dense = not any(one.sparse or getattr(one, "ragged", False) for one in inputs)
    return functional if is_dense and not any(_is_optional(one) for one in inputs) else None


def _is_optional(one: Any) -> bool:
    return bool(getattr(one._keras_history.operation, "optional", False))


def _with_name(spec: Any, name: str) -> Any:
    if not isinstance(spec, tf.TensorSpec) or not _NAME.fullmatch(name):
        return spec
    return tf.TensorSpec(spec.shape, spec.dtype, name=name)
