"""What answers served layers during a call: a recorder of ids, or rows that were pulled for them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticdl.worker.model.embeddings.id_sources import ROWS_MARK
from elasticdl.worker.model.embeddings.swap import Census


class RecordedIds:
    """Records the ids of every call and answers zeros.

    Args:
        census: told when a layer can't be served after all.
        noise: answer random rows instead, to find ids that depend on rows.

    Attributes:
        layers: the served layers by their ``id()``, in order of their first call.
        assigned: the model's weights that the call assigned, with their new values; known after the call.
    """

    def __init__(self, census: Census, *, noise: bool = False) -> None:
        self.layers: dict[int, Any] = {}
        self.calls: list[tuple[Any, Any]] = []
        self.assigned: tuple[tuple[Any, Any], ...] = ()
        self._calls: dict[int, list[Any]] = {}
        self._flat: dict[int, tuple[Any, Any]] = {}
        """Each tensor of ids that was looked up, by its id(), and the same flat."""
        self._census = census
        self._noise = noise
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()

    def rows(self, layer: Any, ids: Any) -> Any:
        """Zeros of the right shape, marked so that ids made from them are recognised."""
        ids = tf.convert_to_tensor(ids)
        if self._graph is not None and tf.compat.v1.get_default_graph() is not self._graph:
            self._census.keep_dense(layer, "it is called inside a loop or a condition")
        self.layers.setdefault(id(layer), layer)
        if id(ids) not in self._flat:
            self._flat[id(ids)] = ids, tf.cast(tf.reshape(ids, [-1]), tf.int64)
        self._calls.setdefault(id(layer), []).append(self._flat[id(ids)][1])
        self.calls.append((layer, ids))
        shape = tf.concat([tf.shape(ids), [layer.output_dim]], 0)
        values = tf.random.stateless_normal(shape, seed=[1, 2]) if self._noise else tf.zeros(shape)
        rows = tf.ensure_shape(values, [*ids.shape, layer.output_dim] if ids.shape.rank is not None else None)
        return tf.identity(rows, name=ROWS_MARK)

    def ids(self, layers: list[Any]) -> list[Any]:
        """Flat int64 ids per layer, calls one after the other; layers that are called alike share one tensor."""
        joined: dict[tuple[int, ...], Any] = {}
        found = []
        for layer in layers:
            calls = self._calls.get(id(layer), [])
            key = tuple(id(flat) for flat in calls)
            if key not in joined:
                joined[key] = tf.concat([tf.zeros([0], tf.int64), *calls], 0) if len(calls) != 1 else calls[0]
            found.append(joined[key])
        return found


class PulledRows:
    """Answers with pulled rows, by the inverse indices of the ids in the order in which they were recorded.

    Args:
        rows: per layer, float32 (unique, width).
        inverses: per layer, int32 (ids,): the row of each id.
    """

    def __init__(self, layers: list[Any], rows: list[Any], inverses: list[Any]) -> None:
        self._rows = {id(layer): table for layer, table in zip(layers, rows, strict=True)}
        self._inverses = {id(layer): inverse for layer, inverse in zip(layers, inverses, strict=True)}
        self._offsets: dict[int, Any] = {}

    def rows(self, layer: Any, ids: Any) -> Any:
        """The rows of one call's ids."""
        key = id(layer)
        ids = tf.convert_to_tensor(ids)
        start = self._offsets.get(key, 0)
        self._offsets[key] = end = start + tf.size(ids)
        inverse = tf.reshape(self._inverses[key][start:end], tf.shape(ids))
        rows = tf.gather(self._rows[key], inverse)
        return tf.ensure_shape(rows, [*ids.shape, layer.output_dim]) if ids.shape.rank is not None else rows
