"""Calls of traced functions with flat tensors, against TensorFlow's own call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


def example() -> tuple[Any, Any, Any]:
    """A function of structures that updates a variable, its variable, and arguments for it."""
    import tensorflow as tf

    total = tf.Variable(0.0)

    def combine(features: Any, pair: Any, nothing: Any) -> Any:
        assert nothing == ()
        total.assign_add(tf.reduce_sum(pair[0]))
        return {"z": features["b"] - pair[0], "a": [tf.reduce_sum(features["r"]), (features["a"], total.read_value())]}

    arguments = (
        {"b": tf.constant([1.0, 2.0]), "a": tf.constant([3]), "r": tf.ragged.constant([[1.0], [2.0, 3.0]])},
        (tf.constant([5.0, 7.0]),),
        (),
    )
    signature = (
        {
            "a": tf.TensorSpec([None], tf.int32),
            "r": tf.RaggedTensorSpec([None, None], tf.float32),
            "b": tf.TensorSpec([None], tf.float32),
        },
        (tf.TensorSpec([None], tf.float32),),
        (),
    )
    return tf.function(combine, input_signature=signature), total, arguments


def test_a_call_gives_what_tensorflow_gives() -> None:
    import tensorflow as tf

    from elasticdl.worker.model.traced import TracedFunction

    function, total, arguments = example()
    expected = function(*arguments)
    total.assign(0.0)
    found = TracedFunction(function)(*arguments)
    tf.nest.map_structure(lambda one, other: np.testing.assert_array_equal(one, other), found, expected)
    tf.nest.assert_same_structure(found, expected)
    assert total.numpy() == 12.0


def test_a_tensor_of_another_type_is_refused() -> None:
    import tensorflow as tf

    from elasticdl.worker.model.traced import TracedFunction

    function, _, (features, _, nothing) = example()
    with pytest.raises(tf.errors.InvalidArgumentError):
        TracedFunction(function)(features, (tf.constant([1, 2]),), nothing)


class Pair(NamedTuple):
    """A structure that is neither a plain tuple nor a list."""

    first: Any
    second: Any


@pytest.mark.parametrize(
    "make",
    [
        lambda one, two: Pair(one, [two, (), {"z": two, "a": (one,)}]),
        lambda one, two: [one],
        lambda one, two: (two, two),
        lambda one, two: {"b": {}, "a": Pair((one,), two)},
        lambda one, two: (one, None, two),
        lambda one, two: one,
        lambda one, two: OrderedDict(z=one, a=two),
    ],
)
def test_the_outputs_have_the_structure_that_tensorflow_gives(make: Callable[[Any, Any], Any]) -> None:
    import tensorflow as tf

    from elasticdl.worker.model.traced import TracedFunction

    signature = (tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32))
    function = tf.function(make, input_signature=signature, autograph=False)
    arguments = tf.constant(7), tf.constant([1.0, 2.0])
    found, expected = TracedFunction(function)(*arguments), function(*arguments)
    assert repr(found) == repr(expected)
