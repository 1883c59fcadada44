"""Random numbers of user code as a function of a seed per batch, whichever process computes the batch.

TensorFlow's random operations keep their state in a kernel, and Keras' ``SeedGenerator`` in a variable: both would
depend on the batches that a process has computed before. While user code is traced or runs eagerly under
``BatchRandomness.drawing``, all of them draw from one ``tf.random.Generator`` that ``batch`` resets.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.stateless_scope import get_stateless_scope  # No public name: whether a value is mapped.
from tensorflow.python.data.util import random_seed as dataset_seeds  # No public names: the functions behind
from tensorflow.python.framework import random_seed  # dataset.shuffle() and tf.random.*, and what gives them seeds.
from tensorflow.python.ops import gen_random_ops

from elasticdl.worker.model.synchronized import EXCHANGE_MARK
from elasticdl.worker.model.traced import TracedFunction

_SEEDS = 1 << 32
_PYTHON_OPERATIONS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_PYTHON_GENERATORS = threading.RLock()
"""Held while Python code runs that may draw from the global generators of Python and NumPy: feed and step overlap."""
_NO_PYTHON = nullcontext()
_current = threading.local()


def seed_process(seed: int) -> None:
    """Set the global seeds of Python, NumPy and TensorFlow."""
    keras.utils.set_random_seed(seed % _SEEDS)


class BatchRandomness:
    """The random numbers of one function of user code.

    Args:
        eager: the function runs as Python code for each batch; otherwise it is traced once.
    """

    def __init__(self, *, eager: bool = False) -> None:
        _install()
        self._generator = tf.random.Generator.from_seed(0, alg="philox")
        self._draws = eager
        self._runs_python = eager

    @property
    def is_shared(self) -> bool:
        """Whether batches that are computed side by side would draw from the same generator."""
        return self._draws or self._runs_python

    @property
    def variable(self) -> Any:
        """The generator's state."""
        return self._generator.state

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Have user code in this block, on this thread, draw from this generator."""
        outer, _current.randomness = getattr(_current, "randomness", None), self
        try:
            yield
        finally:
            _current.randomness = outer

    def trace(self, function: Any) -> TracedFunction:
        """Trace a ``tf.function`` of user code that is called under ``batch``."""
        with self.drawing():
            traced = TracedFunction(function)
        definition = traced.graph.as_graph_def()
        nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
        python = (node for node in nodes if node.op in _PYTHON_OPERATIONS and EXCHANGE_MARK not in node.name)
        self._runs_python = self._runs_python or any(True for _ in python)
        return traced

    def batch(self, seed: int) -> AbstractContextManager[None]:
        """Compute one batch in a ``with`` block; its random numbers follow from a seed (64 bits)."""
        if self._draws:
            key = np.asarray(seed % (1 << 64), np.uint64).view(np.int64)
            self._generator.reset(np.array([0, 0, key], np.int64))
        return self._python(seed) if self._runs_python else _NO_PYTHON

    @contextmanager
    def _python(self, seed: int) -> Iterator[None]:
        with _PYTHON_GENERATORS, self.drawing():
            random.seed(seed)
            np.random.seed(seed % _SEEDS)
            yield

    def generator(self) -> Any:
        """The generator, to draw from."""
        self._draws = True
        return self._generator

    def seed(self) -> Any:
        """A seed for one stateless operation: int64 (2,)."""
        return self.generator().make_seeds(1)[:, 0]


def _randomness() -> BatchRandomness | None:
    return getattr(_current, "randomness", None)


def _normal(draw: BatchRandomness, shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_normal(shape, draw.seed(), dtype=dtype)


def _truncated_normal(draw: BatchRandomness, shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_truncated_normal(shape, draw.seed(), dtype=dtype)


def _uniform(draw: BatchRandomness, shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_uniform(shape, draw.seed(), dtype=dtype)


def _uniform_int(draw: BatchRandomness, shape: Any, minval: Any, maxval: Any, **_: Any) -> Any:
    minval = tf.convert_to_tensor(minval)
    return tf.random.stateless_uniform(shape, draw.seed(), minval=minval, maxval=maxval, dtype=minval.dtype)


def _shuffle(draw: BatchRandomness, value: Any, **_: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(value, draw.seed())


def _categorical(draw: BatchRandomness, logits: Any, num_samples: Any, output_dtype: Any = tf.int64, **_: Any) -> Any:
    return tf.random.stateless_categorical(logits, num_samples, draw.seed(), dtype=output_dtype)


def _gamma(draw: BatchRandomness, shape: Any, alpha: Any, **_: Any) -> Any:
    alpha = tf.convert_to_tensor(alpha)
    full = tf.concat([shape, tf.shape(alpha)], 0)
    return tf.random.stateless_gamma(full, draw.seed(), alpha=alpha, dtype=alpha.dtype)


def _poisson(draw: BatchRandomness, shape: Any, rate: Any, dtype: Any = tf.int64, **_: Any) -> Any:
    rate = tf.convert_to_tensor(rate)
    return tf.random.stateless_poisson(tf.concat([shape, tf.shape(rate)], 0), draw.seed(), rate, dtype=dtype)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "random_standard_normal": _normal,
    "truncated_normal": _truncated_normal,
    "random_uniform": _uniform,
    "random_uniform_int": _uniform_int,
    "random_shuffle": _shuffle,
    "multinomial": _categorical,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
}
"""TensorFlow's stateful operations -> what draws the same distribution from a seed."""


@functools.cache
def _install() -> None:
    """Have the random functions of TensorFlow and Keras draw from the randomness of their thread, if it has one."""
    for name, stateless in _OPERATIONS.items():
        setattr(gen_random_ops, name, _drawing(getattr(gen_random_ops, name), stateless))
    dataset_seeds.get_seed = _dataset_seed(dataset_seeds.get_seed)
    random_seed.get_seed = _unused_seed(random_seed.get_seed)
    keras.random.SeedGenerator.next = _next_seed(keras.random.SeedGenerator.next)


def _drawing(stateful: Any, stateless: Any) -> Any:
    @functools.wraps(stateful)
    def operation(*args: Any, **kwargs: Any) -> Any:
        randomness = _randomness()
        return stateful(*args, **kwargs) if randomness is None else stateless(randomness, *args, **kwargs)

    return operation


def _dataset_seed(get_seed: Any) -> Any:
    @functools.wraps(get_seed)
    def seeds(seed: Any) -> Any:
        randomness = _randomness()
        return get_seed(seed) if randomness is None or seed is not None else tuple(tf.unstack(randomness.seed()))

    return seeds


def _unused_seed(get_seed: Any) -> Any:
    """The seeds of stateful operations; TensorFlow warns if it has to invent some inside ``dataset.map()``."""

    @functools.wraps(get_seed)
    def seeds(op_seed: Any) -> Any:
        return get_seed(op_seed) if _randomness() is None else (0, 0)

    return seeds


def _next_seed(following: Any) -> Any:
    @functools.wraps(following)
    def next_seed(self: Any, ordered: bool = True) -> Any:
        randomness, scope = _randomness(), get_stateless_scope()
        if randomness is None or (scope is not None and scope.get_current_value(self.state) is not None):
            return following(self, ordered)  # A step gives the generators of the model's own layers their seeds.
        return tf.cast(randomness.seed(), self.state.dtype)

    return next_seed
