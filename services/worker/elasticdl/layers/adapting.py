"""Preprocessing layers that learn their state from the training data of a job, once for all of its processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Adapter(Protocol):
    """Gives layers the state that the training data of a job determines."""

    def adapt(self, layer: Any, columns: tuple[str, ...]) -> None:
        """Set a layer's state; see the function ``adapt``."""


_adapter: Adapter | None = None


def use(adapter: Adapter | None) -> None:
    """Have an adapter serve every later call of ``adapt`` in this process; None: there is no job."""
    global _adapter
    _adapter = adapter


def adapt(layer: Any, columns: str | Sequence[str] = ()) -> Any:
    """Adapt a preprocessing layer to columns of the job's training data, as ``layer.adapt(values)`` of Keras does.

    One process of the job reads the training data and adapts the layer before training starts. The state is kept
    with the job, so all workers, also those that start later, and jobs that evaluate the model use the same one. Call
    it in the model function, or where the file makes its model::

        price = adapt(keras.layers.Normalization(), "price")
        words = adapt(keras.layers.TextVectorization(max_tokens=10_000), "review")

    Args:
        layer: a layer with an ``adapt()`` method, such as ``Normalization``, ``StringLookup``, ``IntegerLookup``,
            ``TextVectorization`` or ``Discretization``, or a ``FeatureSpace``.
        columns: a column of CSV, JSON lines or Parquet data, or several, which are stacked in this order. The layer
            gets values of shape (records, columns), of a column of lists (records, length), and of one of lists of
            varying length (elements, 1). A ``FeatureSpace`` takes the columns of its features, so none are given.

    Returns:
        The layer.

    Raises:
        RuntimeError: the model file is not used by a job.
    """
    if _adapter is None:
        raise RuntimeError(
            "elasticdl.layers.adapt() takes the training data of an ElasticDL job, and there is none here. "
            "Call layer.adapt(values) instead."
        )
    _adapter.adapt(layer, (columns,) if isinstance(columns, str) else tuple(columns))
    return layer
