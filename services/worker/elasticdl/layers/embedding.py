"""An embedding whose table may have any number of rows."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.src.utils.naming import auto_name

from elasticdl.layers import serving
from elasticdl.shared.model.signature import UPDATES_MAX

COMBINERS = (None, "sum", "mean", "sqrtn")
ROWS_SUFFIX = "_rows"
"""Ends the name of the plain layer with the rows of an ``Embedding`` with a combiner, in an exported model."""


@keras.saving.register_keras_serializable(package="elasticdl")  # A file names it beside Keras' layer of that name.
class Embedding(keras.layers.Layer):  # type: ignore[misc]
    """Looks ids up in a table that the parameter servers hold, row by row, from the first id seen.

    Outside a job the layer is an ordinary Keras layer with its own table; it needs ``input_dim`` for that, and so
    does exporting a model.

    Args:
        output_dim: floats per row.
        input_dim: number of ids, or None for an open-ended table.
        embeddings_initializer: distribution of rows that were not trained yet.
        embeddings_regularizer: added to the loss; in a job it counts the rows of the batch only, and the job says so.
        mask_zero: id 0 is padding: it is masked, and left out by ``combiner``.
        combiner: None gives one row per id; ``sum``, ``mean`` or ``sqrtn`` combine the ids of the last axis.
        min_count: how many updates of the model must contain an id until its row is trained and stored. Before that
            the id has its initial row, and its gradients are dropped.
        expire_after: a row is removed after this many updates that do not contain its id, which then starts like one
            that was never seen. None: rows stay.

    Input shape:
        Integer ids (batch, ids); with a combiner also ``tf.RaggedTensor`` and ``tf.SparseTensor``.

    Output shape:
        (batch, ids, output_dim), with a combiner (batch, output_dim); float.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """While a model is made for export: a plain Keras layer that computes the same."""
        construction = serving.construction()
        if construction is not None and construction.plain:
            return plain_embedding(*args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        output_dim: int,
        input_dim: int | None = None,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        mask_zero: bool = False,
        combiner: str | None = None,
        min_count: int = 1,
        expire_after: int | None = None,
        **kwargs: Any,
    ) -> None:
        if combiner not in COMBINERS:
            raise ValueError(f"combiner={combiner!r}; expected None, 'sum', 'mean' or 'sqrtn'")
        check_updates("min_count", min_count)
        if expire_after is not None:
            check_updates("expire_after", expire_after)
        super().__init__(**kwargs)
        self.output_dim = output_dim
        self.input_dim = input_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.mask_zero = mask_zero
        self.combiner = combiner
        self.min_count = min_count
        self.expire_after = expire_after
        self.supports_masking = mask_zero
        self.autocast = False
        self.__dict__["_construction"] = serving.construction()
        self.is_served = False
        if self._construction is not None:
            self._construction.register(self)

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 (Keras' signature)
        """Make the layer's own table, unless it is served."""
        self.is_served = self._construction is not None and self._construction.serves(self)
        if self.is_served:
            return
        if self.input_dim is None:
            raise ValueError(f"embedding {self.name!r} has no input_dim: an open-ended table exists only in a job")
        self._table = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            name="embeddings",
        )

    def call(self, inputs: Any) -> Any:
        """Rows of ids, combined if the layer has a combiner."""
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.RaggedTensor.from_value_rowids(inputs.values, inputs.indices[:, 0], inputs.dense_shape[0])
        if isinstance(inputs, tf.RaggedTensor):
            return self._combine_ragged(inputs)
        rows = self._rows(inputs)
        if self.combiner is None:
            return ops.cast(rows, self.compute_dtype)
        kept = ops.not_equal(inputs, 0) if self.mask_zero else ops.ones_like(inputs, dtype="bool")
        return ops.cast(combine(rows, ops.cast(kept, rows.dtype), self.combiner), self.compute_dtype)

    def compute_mask(self, inputs: Any, previous: Any = None) -> Any:  # noqa: ARG002 (Keras' signature)
        """Where ids are not padding."""
        return ops.not_equal(inputs, 0) if self.mask_zero and self.combiner is None else None

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Shape of the rows, without the ids' axis when they are combined."""
        kept = input_shape if self.combiner is None else input_shape[:-1]
        return (*kept, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config: dict[str, Any] = super().get_config()
        # A layer without these options has the configuration that it had before they existed, so a job can be resumed.
        options = {"min_count": self.min_count, "expire_after": self.expire_after}
        config |= {
            name: value for name, value in options.items() if value is not None and (name, value) != ("min_count", 1)
        }
        return config | {
            "output_dim": self.output_dim,
            "input_dim": self.input_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
        }

    def save_own_variables(self, store: Any) -> None:
        """Keras' hook: a model that is exported without its tables has numbers in their places."""
        if not serving.save_number(self, store):
            super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """Keras' hook, the inverse."""
        if not serving.load_number(self, store):
            super().load_own_variables(store)

    def _rows(self, ids: Any) -> Any:
        if keras.backend.standardize_dtype(ids.dtype) not in ("int32", "int64"):
            ids = ops.cast(ids, "int64")
        return serving.rows(self, ids) if self.is_served else ops.take(self._table, ids, axis=0)

    def _combine_ragged(self, ids: Any) -> Any:
        if self.combiner is None:
            raise ValueError(f"embedding {self.name!r} needs a combiner for ragged or sparse ids")
        if self.mask_zero:
            ids = tf.ragged.boolean_mask(ids, tf.not_equal(ids, 0))
        sums = tf.math.unsorted_segment_sum(self._rows(ids.values), ids.value_rowids(), ids.nrows())
        counts = tf.cast(ids.row_lengths(), sums.dtype)[:, None]
        return ops.cast(sums / _divisor(counts, self.combiner), self.compute_dtype)


def check_updates(name: str, value: object) -> None:
    """Refuse an invalid number of updates."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= UPDATES_MAX:
        reason = " Time can't be used: a batch that is trained again after a failure must find the same rows."
        time = "" if isinstance(value, int | float) else reason
        raise ValueError(
            f"{name}={value!r}; expected a number of updates of the model from 1 to {UPDATES_MAX:,}.{time}"
        )


def combine(rows: Any, kept: Any, combiner: str) -> Any:
    """Combine rows (..., ids, width) over the ids' axis where ``kept`` (..., ids) is 1; no id at all gives zeros."""
    sums = ops.sum(rows * ops.expand_dims(kept, -1), axis=-2)
    return sums / _divisor(ops.sum(kept, axis=-1, keepdims=True), combiner)


def _divisor(counts: Any, combiner: str) -> Any:
    counts = ops.maximum(counts, ops.ones_like(counts))
    return {"sum": ops.ones_like, "mean": lambda count: count, "sqrtn": ops.sqrt}[combiner](counts)


def plain_embedding(
    output_dim: int,
    input_dim: int | None = None,
    *,
    combiner: str | None = None,
    mask_zero: bool = False,
    min_count: int = 1,  # noqa: ARG001 (only training uses it)
    expire_after: int | None = None,  # noqa: ARG001
    **kwargs: Any,
) -> Any:
    """A plain Keras layer, or a small Keras model with a combiner, that computes what ``Embedding`` does.

    Raises:
        ValueError: the table is open-ended.
    """
    if input_dim is None:
        raise ValueError("an embedding without input_dim can't be exported; give elasticdl.layers.Embedding input_dim")
    if combiner is None:
        return keras.layers.Embedding(input_dim, output_dim, mask_zero=mask_zero, **kwargs)
    name = kwargs.pop("name", None) or auto_name("embedding")  # The one that an ``Embedding`` gets in a job.
    ids = keras.Input((None,), dtype="int64")
    rows = keras.layers.Embedding(input_dim, output_dim, name=name + ROWS_SUFFIX, **kwargs)(ids)
    kept = ops.not_equal(ids, 0) if mask_zero else ops.equal(ids, ids)
    return keras.Model(ids, combine(rows, ops.cast(kept, rows.dtype), combiner), name=name)
