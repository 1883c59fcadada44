"""Which embedding tables the ps serves: the swap of ``keras.layers.Embedding``, without touching the user's model.

While the model is being made, ``keras.layers.Embedding`` tells a census of every instance and asks it before it
allocates its table. An instance that is to be served becomes a ``ServedEmbedding``: it has no table and looks its
rows up. ``elasticdl.layers.Embedding`` is always served.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from elasticdl.layers import Embedding, serving
from elasticdl.layers.served import ServedEmbedding
from elasticdl.shared import words
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.embeddings.initializers import row_initializer

FLOAT_BYTES = 4


class Census:
    """The embedding layers of one model, in order of construction, and the decision for each.

    Args:
        kept: layers (by number) that must stay dense, with the reason; grows while the model is made and traced.
        plain: make plain Keras layers only and serve none, for export.

    Attributes:
        outdated: a decision turned out to be impossible; the model has to be made again with ``kept``.
    """

    def __init__(self, *, swap_bytes_min: int, kept: dict[int, str] | None = None, plain: bool = False) -> None:
        self.plain = plain
        self.lookup = None
        self.layers: list[Any] = []
        self.kept = {} if kept is None else kept
        self.outdated = False
        self._swap_bytes_min = swap_bytes_min
        self._lines: dict[int, str] = {}
        self._named: dict[int, Any] = {}

    def register(self, layer: Any) -> None:
        """A layer has been constructed; its number is its place in the order."""
        self.layers.append(layer)

    def number(self, layer: Any) -> int:
        """A layer's number."""
        return next(number for number, known in enumerate(self.layers) if known is layer)

    def keep_dense(self, layer: Any, reason: str) -> None:
        """Remember that a served layer can't be; the model has to be made again.

        Raises:
            UserError: the layer is one that can't have a dense table.
        """
        if isinstance(layer, Embedding):
            raise UserError(f"embedding {layer.name!r} (elasticdl.layers.Embedding) can't be served: {reason}")
        self.kept[self.number(layer)] = reason
        self.outdated = True

    def serves(self, layer: Any) -> bool:
        """Decide for one layer, as it is about to allocate its table.

        Raises:
            UserError: an ``elasticdl.layers.Embedding`` whose initializer can't be driven row by row.
        """
        if self.plain:
            return False
        always = isinstance(layer, Embedding)
        reason = self._obstacle(layer)
        if always and reason:
            raise UserError(f"embedding {layer.name!r} (elasticdl.layers.Embedding) can't be served: {reason}")
        size = table_bytes(layer)
        if not reason and not always and size < self._swap_bytes_min:
            least = self._swap_bytes_min
            reason = f"{words.size(size)} < {words.size(least)}" if least < sys.maxsize else "the file holds its table"
        rows = f"{layer.input_dim:,}" if layer.input_dim else "any number of ids"
        self._lines[self.number(layer)] = (
            f"embedding {layer.name} stays dense: {reason}"
            if reason
            else f"embedding {layer.name}: {rows} x {layer.output_dim}"
            + (f" ({words.size(size)})" if size else "")
            + " served by the ps"
            + _options(layer)
        )
        if not reason:
            # TensorFlow's name of a variable depends on when and where Keras makes it, so one is made like the table.
            self._named[self.number(layer)] = keras.Variable("zeros", (), trainable=False, name="embeddings")
        return not reason

    def named_like_table(self, number: int) -> Any:
        """A variable with the names that the table of a served layer would have, and nothing else of it."""
        return self._named[number]

    def describe(self) -> list[str]:
        """One line per embedding layer, for the worker's start."""
        return [line for _, line in sorted(self._lines.items())]

    def _obstacle(self, layer: Any) -> str:
        if not isinstance(layer, Embedding):
            number = self.number(layer)
            if number in self.kept:
                return self.kept[number]
            if layer.embeddings_constraint is not None:
                return "it has a constraint"
            if layer.lora_rank or layer.quantization_mode:
                return "it is quantized or has LoRA"
        if layer.variable_dtype != "float32":
            return f"its table is {layer.variable_dtype}, not float32"
        if row_initializer(layer.embeddings_initializer, layer.input_dim, layer.output_dim) is None:
            return f"its initializer {type(layer.embeddings_initializer).__name__} can't be driven row by row"
        return ""


@contextmanager
def taking(census: Census) -> Iterator[None]:
    """Let a census see and decide for every embedding layer that is constructed inside the block.

    Layers built after the block (a subclassed model's first call) still ask the census they were constructed under.
    """
    kind, every = keras.layers.Embedding, keras.layers.Layer
    original_init, original_build, original_set = kind.__init__, kind.build, every.set_weights

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, ServedEmbedding):
            self.__dict__["_construction"] = census
            census.register(self)
            if type(self) is not kind:
                census.kept[census.number(self)] = f"{type(self).__name__} is a subclass of keras.layers.Embedding"
            elif (args[6] if len(args) > 6 else kwargs.get("weights")) is not None:
                census.kept[census.number(self)] = "it has pretrained weights"
        original_init(self, *args, **kwargs)

    @functools.wraps(original_build)
    def build(self: Any, input_shape: Any = None) -> None:
        asked = self.__dict__.get("_construction")
        if not self.built and asked is not None and asked.serves(self):
            self.__class__ = ServedEmbedding
            return
        original_build(self, input_shape)
        if asked is not None and not asked.plain and type(self).call is kind.call:
            self.__dict__["call"] = functools.partial(_call_in_range, self)

    @functools.wraps(original_set)
    def set_weights(self: Any, weights: Any) -> None:
        """A layer that has served ones inside, such as the whole model, expects weights for their tables, too."""
        for layer in self._flatten_layers():
            if isinstance(layer, ServedEmbedding):
                layer.set_weights(weights)
            elif isinstance(layer, Embedding) and layer.is_served:
                census.keep_dense(layer, "the model sets its weights")
        original_set(self, weights)

    init.__signature__ = inspect.signature(original_init)  # type: ignore[attr-defined]  # Keras reads it.
    kind.__init__, kind.build, every.set_weights = init, build, set_weights
    try:
        with serving.constructing(census):
            yield
    finally:
        kind.__init__, kind.build, every.set_weights = original_init, original_build, original_set


def _call_in_range(layer: Any, inputs: Any) -> Any:
    """What a dense layer does, but a negative id is outside of it, as it is of a table on the ps.

    Keras counts negative ids from the end of the table, once.
    """

    def kept_negative(ids: Any) -> Any:
        if keras.backend.standardize_dtype(ids.dtype) not in ("int32", "int64"):
            ids = keras.ops.cast(ids, "int32")
        return keras.ops.where(ids < 0, ids - layer.input_dim, ids)

    if isinstance(inputs, tf.RaggedTensor):
        inputs = inputs.with_values(kept_negative(inputs.values))
    elif not isinstance(inputs, tf.SparseTensor):
        inputs = kept_negative(inputs)
    return type(layer).call(layer, inputs)


class ShapesOnly:
    """A lookup that answers zeros: for building a model."""

    def rows(self, layer: Any, ids: Any) -> Any:
        """Zeros of the right shape."""
        return keras.ops.zeros((*keras.ops.shape(ids), layer.output_dim), "float32")


def table_bytes(layer: Any) -> int:
    """Size of a layer's table; 0: it is open-ended."""
    return (layer.input_dim or 0) * int(layer.output_dim) * FLOAT_BYTES


def _options(layer: Any) -> str:
    """When rows of a served layer come and go, and what its regularizer sees, for people."""
    min_count, expire_after = getattr(layer, "min_count", 1), getattr(layer, "expire_after", None)
    parts = [
        f", trained from update {min_count:,} of an id on" if min_count > 1 else "",
        f", removed after {expire_after:,} updates without it" if expire_after else "",
        "; its regularizer counts the rows of a batch only" if layer.embeddings_regularizer is not None else "",
    ]
    return "".join(parts)
