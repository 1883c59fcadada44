"""Records the ids that a model looks up, and finds the layers whose ids are not the same in every call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.layers import serving
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.embeddings.id_sources import ON_RANDOM_NUMBERS, ON_ROWS, ON_WEIGHTS, IdSources
from elasticdl.worker.model.embeddings.lookups import RecordedIds
from elasticdl.worker.model.embeddings.swap import Census
from elasticdl.worker.model.user.randomness import BatchRandomness

_CALLS = 4
"""Other calls that are compared with the first one where there is no graph to search."""


def record_ids(
    model: Any,
    features: Any,
    census: Census,
    *,
    training: bool,
    noise: bool = False,
    weights: Iterable[tuple[Any, Any]] = (),
) -> RecordedIds:
    """Call the model for the ids that its served layers are given, and nothing else: no variable moves.

    Args:
        census: told when a layer can't be served after all.
        noise: answer random rows instead of zeros.
        weights: values of the model's weights, where they should be others than its own.
    """
    recorded = RecordedIds(census, noise=noise)
    with keras.StatelessScope(list(weights)) as scope, serving.looking_up(recorded):
        model(features, training=training)
    values = ((one, scope.get_current_value(one)) for one in model.weights)
    recorded.assigned = tuple((one, value) for one, value in values if value is not None)
    return recorded


def find_lookups(model: Any, example: Batch, census: Census, *, training: bool, eager: bool) -> RecordedIds:
    """What a call looks up and assigns. Layers whose ids may differ in another call of the same batch are kept dense.

    Raises:
        UserError: one of these layers can't be dense.
    """
    if eager:
        return _compare_calls(model, example, census, training=training)
    found: list[RecordedIds] = []

    def ids(features: Any) -> Any:
        found.append(record_ids(model, features, census, training=training))
        return found[-1].ids(list(found[-1].layers.values()))

    randomness = BatchRandomness()
    traced = randomness.trace(tf.function(ids, input_signature=(example.spec.features,), autograph=False))
    recorded = found[-1]
    sources = IdSources(traced.graph, _changing(model, recorded))
    for layer, looked_up in recorded.calls:
        if reason := sources.obstacle(looked_up):
            census.keep_dense(layer, reason)
    if sources.runs_python:
        calls = []
        for seed in range(_CALLS + 1):
            with randomness.batch(seed):
                calls.append([flat.numpy() for flat in traced(example.features)])
        for layer, *values in zip(recorded.layers.values(), *calls, strict=True):
            if _differ(values):
                census.keep_dense(layer, ON_RANDOM_NUMBERS)
    return recorded


def _compare_calls(model: Any, example: Batch, census: Census, *, training: bool) -> RecordedIds:
    """Without a graph, change everything that ids must not depend on, and compare the ids."""
    randomness = BatchRandomness(eager=True)

    def call(seed: int = 0, *, noise: bool = False, weights: Iterable[tuple[Any, Any]] = ()) -> RecordedIds:
        with randomness.batch(seed):
            return record_ids(model, example.features, census, training=training, noise=noise, weights=weights)

    first = call()
    layers = list(first.layers.values())
    seeds = range(1, _CALLS + 1)
    others = [_other_weights(model, first, seed) for seed in seeds]
    ids = {
        reason: [first.ids(layers), *(one.ids(layers) for one in calls)]
        for reason, calls in (
            (ON_RANDOM_NUMBERS, [call(seed) for seed in seeds]),
            (ON_ROWS, [call(noise=True)]),
            (ON_WEIGHTS, [call(weights=weights) for weights in others if weights]),
        )
    }
    for number, layer in enumerate(layers):
        reasons = [reason for reason, calls in ids.items() if _differ([one[number] for one in calls])]
        if reasons:
            census.keep_dense(layer, reasons[0])
    return first


def _changing(model: Any, recorded: RecordedIds) -> list[Any]:
    """Weights that have other values in another step: the optimizer or a call changes them."""
    assigned = {id(variable) for variable, _ in recorded.assigned}
    return [one for one in model.weights if one.trainable or id(one) in assigned]


def _other_weights(model: Any, recorded: RecordedIds, seed: int) -> list[tuple[Any, Any]]:
    """Values that the changing weights might have later."""
    assigned = {id(variable): value for variable, value in recorded.assigned}
    random = np.random.default_rng(seed)
    return [
        (one, assigned[id(one)] if id(one) in assigned else tf.cast(random.normal(size=one.shape), one.dtype))
        for one in _changing(model, recorded)
    ]


def _differ(values: Sequence[Any]) -> bool:
    return any(not np.array_equal(values[0], other) for other in values[1:])
