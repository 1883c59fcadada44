"""What the layers of a model hold: configuration, vocabularies, attributes, variables that the ps does not serve."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.worker.model.fingerprint.values import SIMPLE, Description, describe

_LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup, keras.layers.TextVectorization)
_SAID = ("name", "trainable", "dtype", "batch_input_shape")
"""Parts of each layer's configuration that would fill its preview; the graph shows the types."""
_SEED = "seed_generator_state"
"""Keras' name of a generator's state: its numbers follow from the batch."""


def layer_entries(model: Any, served: set[int]) -> Iterator[tuple[str, Description]]:
    """What has to be the same in all processes that make the model.

    Args:
        served: ``id`` of each variable whose value comes from the ps.

    Yields:
        Name of a thing, as the user knows it, and its description.
    """
    for number, layer in enumerate(model._flatten_layers()):
        name = f"layer {layer.path or layer.name!r}" if number else "the model"
        if isinstance(layer, _LOOKUPS):
            yield f"the vocabulary of {name}", describe(_vocabulary(layer))
        for attribute, value in sorted(vars(layer).items()):
            if not attribute.startswith("_") and is_data(value):
                yield f"attribute {attribute!r} of {name}", describe(value)
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            if id(variable) not in served and not variable.name.startswith(_SEED):
                yield f"variable {variable.name!r} of {name}", describe(variable.numpy())
        if not isinstance(layer, keras.Model):  # The configuration of a model is made of those of its layers.
            yield f"the configuration of {name}", describe(_configuration(layer))


def is_data(value: Any) -> bool:
    """Whether a value is an array, a tensor, or a collection of those and of scalars; no scalar by itself.

    Scalars are often times, process ids and paths, which differ between processes.
    """
    match value:
        case np.ndarray() | tf.Tensor():
            return not isinstance(value, tf.Tensor) or (
                hasattr(value, "numpy") and value.dtype not in (tf.resource, tf.variant)
            )
        case Mapping():
            return bool(value) and all(_is_part(item) for pair in value.items() for item in pair)
        case list() | tuple() | set() | frozenset():
            return bool(value) and all(_is_part(item) for item in value)
        case _:
            return False


def _is_part(value: Any) -> bool:
    return isinstance(value, SIMPLE) or is_data(value)


def _vocabulary(layer: Any) -> Any:
    lookup = getattr(layer, "_lookup_layer", layer)
    return lookup.get_vocabulary() if lookup.lookup_table is not None else None


def _configuration(layer: Any) -> Any:
    """A layer's configuration; None for a class that can't describe itself."""
    try:
        with warnings.catch_warnings(action="ignore"):
            config = layer.get_config()
            return _comparable({key: value for key, value in config.items() if key not in _SAID})
    except (NotImplementedError, TypeError, ValueError):
        return None


def _comparable(config: Any) -> Any:
    """A configuration without the code of lambdas: its bytes depend on the process; the graph shows what it does."""
    match config:
        case {"class_name": "__lambda__"}:
            return "lambda"
        case Mapping():
            return {key: _comparable(value) for key, value in config.items()}
        case list() | tuple():
            return [_comparable(value) for value in config]
        case _:
            return config
