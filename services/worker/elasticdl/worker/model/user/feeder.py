"""From one batch's raw records to tensors, through the user's ``feed`` or ``feed_batch``.

``feed`` is given a ``tf.data.Dataset`` of the records of *one* batch, traced once and run for each batch: a shuffle
stays inside the batch and a filter shortens it. What would break "the k-th batch is always the same records" is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import (
    ag_ctx,
)  # No public name: tf.function(autograph=False) disables map()'s too.

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.batch import Batch, BatchSpec, Structure, open_spec
from elasticdl.worker.model.tensors import shape_of
from elasticdl.worker.model.traced import TracedFunction
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.class_weights import NAME as CLASS_WEIGHT
from elasticdl.worker.model.user.class_weights import ClassWeights
from elasticdl.worker.model.user.columns import ColumnArrays, ColumnPacker
from elasticdl.worker.model.user.default_feed import DefaultFeed
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.model.user.randomness import BatchRandomness

RawBatch = Sequence[bytes] | ColumnArrays
"""Raw records (TFRecord payloads, CSV lines), or columns of equal length (CSV, JSON, Parquet)."""

_REFUSED = {
    "BatchDataset": "batch",
    "BatchDatasetV2": "batch",
    "ParallelBatchDataset": "batch",
    "PaddedBatchDataset": "padded_batch",
    "PaddedBatchDatasetV2": "padded_batch",
    "DenseToRaggedBatchDataset": "ragged_batch",
    "WindowDataset": "window",
    "RepeatDataset": "repeat",
    "CacheDataset": "cache",
    "CacheDatasetV2": "cache",
    "ShardDataset": "shard",
}
_SHUFFLES = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
_ELEMENTS_MAX = 1 << 62


class BatchFeeder:
    """Feeds raw batches of one purpose to the user's function.

    Args:
        mode: ``train``, ``evaluate`` or ``predict``, passed on to the user's function.
        metadata: passed on to the user's function (column names and types, for example).
        eager: run the user's function uncompiled, for a debugger.
    """

    def __init__(self, module: UserModule, mode: str, metadata: Any, *, eager: bool = False) -> None:
        self._module = module
        self._mode = mode
        self._metadata = metadata
        self._eager = eager
        self._whole = module.function("feed_batch")
        self._class_weights = ClassWeights.of(module) if mode == "train" else None
        self._packer = ColumnPacker()
        self._randomness = BatchRandomness(eager=eager)
        self._function: Callable[[Structure], Structure] | None = None
        self._joined: TracedFunction | None = None
        self._signature: tuple[Structure, ...] = ()
        self._spec: BatchSpec | None = None
        self._code: user_code | None = None
        """The user's function, with the columns of the first batch, which all batches have."""
        self._has_labels = True
        self.traces = 0

    def feed(self, records: RawBatch, seed: int = 0) -> Batch | None:
        """Turn raw records into a batch; None when the user's filter drops them all.

        Args:
            seed: determines the random numbers that the user's function draws.

        Raises:
            RecordError: a label is no class of the model.
            UserError: the user's function breaks the contract, or a column changed its type.
            UserCodeError: the user's function raised.
        """
        if self.default_feed is not None and isinstance(records, Mapping):
            records = self.default_feed.numbered(records)
        tensors, count = self._tensors(records)
        if count == 0:
            return None
        if self._code is None:
            self._code = user_code(self._module.path, self._name, [*records] if isinstance(records, Mapping) else [])
        with self._code:
            if self._function is None:
                self._function = self._compile(tensors)
            try:
                fed, ids = self._called(self._function, tensors, seed)
            except tf.errors.InvalidArgumentError as error:
                if "Dataset was empty" in str(error):
                    return None
                raise
        return self._batch(fed, count, ids)

    def join(self, find_ids: TracedFunction) -> None:
        """Find the ids of each batch in the same call: with a small batch, a call costs more than what it does."""
        feed = self.traced
        if feed is None:
            return

        def both(tensors: Structure) -> Structure:
            fed = feed(tensors)
            return fed, find_ids(self._split(fed)[0])

        self._joined = TracedFunction(tf.function(both, autograph=False, input_signature=self._signature))

    def _called(
        self, function: Callable[[Structure], Structure], tensors: Structure, seed: int
    ) -> tuple[Structure, list[Any] | None]:
        """What the user's function gives, and the ids if both were joined."""
        if self._joined is not None:
            try:
                with self._randomness.batch(seed):
                    fed, ids = self._joined(tensors)
                    return fed, ids
            except tf.errors.OpError:  # One call after the other, so that the error says which of them it belongs to.
                pass
        with self._randomness.batch(seed):
            return function(tensors), None

    @property
    def default_feed(self) -> DefaultFeed | None:
        """What stands in for the user's function; None: the file has one."""
        return self._module.default_feed

    @property
    def is_compiled(self) -> bool:
        """Whether the user's function could be compiled, or is to run uncompiled and has been looked at."""
        return self._function is not None

    @property
    def traced(self) -> TracedFunction | None:
        """The user's function once it is compiled; None if it is not, or runs uncompiled."""
        return self._function if isinstance(self._function, TracedFunction) else None

    @cached_property
    def _name(self) -> str:
        if self.default_feed:
            return "the default feed"
        return f"{self._module.file.name_of('feed_batch' if self._whole is not None else 'feed')}()"

    def _compile(self, tensors: Structure) -> Callable[[Structure], Structure]:
        run = self._run_whole if self._whole is not None else self._run_dataset
        self._signature = (self._packer.signature() if isinstance(tensors, Mapping) else open_spec(tensors),)
        compiled = tf.function(run, autograph=self._whole is not None, input_signature=self._signature)
        if self._eager:
            if self._whole is None:
                compiled.get_concrete_function()  # For the check of its operations, which needs a graph.
            return run
        return self._randomness.trace(compiled)

    def _run_whole(self, records: Structure) -> Structure:
        assert self._whole is not None
        self.traces += 1
        return self._weighted(self._whole(self._unpacked(records), self._mode, self._metadata))

    def _run_dataset(self, records: Structure) -> Structure:
        self.traces += 1
        feed, raw = self._module.required("feed"), tf.data.Dataset.from_tensor_slices(self._unpacked(records))
        # As in eager mode: feed() itself is plain Python, the functions given to map() and filter() are converted.
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED):
            dataset = feed(raw, self._mode, self._metadata)
        if not isinstance(dataset, tf.data.Dataset):
            raise UserError(f"{self._module.path}: feed() must return a tf.data.Dataset, not {type(dataset).__name__}")
        if not tf.executing_eagerly():
            self._check_operations(tf.compat.v1.get_default_graph())
        # Elements of a ragged column differ in length, which batch() refuses.
        batched = dataset.ragged_batch if self._packer.has_ragged else dataset.batch
        return self._weighted(batched(_ELEMENTS_MAX).get_single_element())

    def _weighted(self, fed: Structure) -> Structure:
        """What the user's function gives, with the weights of classes as sample weights."""
        fed = self._labelled(fed)
        if self._class_weights is None:
            return fed
        features, labels, weights = self._split(fed)
        if weights is not None:
            raise UserError(
                f"{self._module.path}: {self._name} gives sample weights, and the file defines {CLASS_WEIGHT}",
                hint=f"Remove one of them, as in fit(). Or multiply them in a feed, and rename {CLASS_WEIGHT}.",
            )
        return features, labels, self._class_weights.sample_weights(labels)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # It can't convert ``match``.
    def _labelled(self, fed: Structure) -> Structure:
        """What the user's function gives. A model whose layers add its loss needs no labels: zeros stand for them."""
        features = fed[0] if isinstance(fed, tuple) and fed else fed
        is_alone = not isinstance(fed, tuple) or len(fed) == 1 or (len(fed) == 2 and fed[1] is None)
        if self._mode == "predict" or not is_alone or self._module.value("loss") is not None:
            return fed
        self._has_labels = False
        first = tf.nest.flatten(features)[0]
        match first:
            case tf.RaggedTensor():
                records = tf.reshape(first.nrows(), [1])
            case tf.SparseTensor():
                records = first.dense_shape[:1]
            case _:
                records = tf.shape(first)[:1]
        return features, tf.zeros(records)

    def _check_operations(self, graph: Any) -> None:
        for operation in graph.get_operations():
            if operation.type in _REFUSED:
                raise UserError(
                    f"{self._module.path}: feed() calls dataset.{_REFUSED[operation.type]}(), which is refused",
                    hint="feed() is given the records of one batch, once per batch: map, filter and shuffle only.",
                )
            if operation.type in _SHUFFLES and self._mode == "predict":
                raise UserError(
                    f"{self._module.path}: feed() calls dataset.shuffle() in mode 'predict', so predictions would be "
                    "written beside other records",
                    hint="Shuffle only if mode == 'train'.",
                )

    def _tensors(self, records: RawBatch) -> tuple[Structure, int]:
        """String tensor of records, or packed columns; and the number of records."""
        if isinstance(records, ColumnBatch):
            return self._packer.pack(records), records.records
        if not isinstance(records, Mapping):
            return tf.constant(list(records), dtype=tf.string, shape=[len(records)]), len(records)
        return self._packer.pack(records), min((len(column) for column in records.values()), default=0)

    def _unpacked(self, tensors: Structure) -> Structure:
        """What the user's function gets; its dict is its own: ``records.pop("label")`` is common."""
        return self._packer.unpack(tensors) if isinstance(tensors, Mapping) else tensors

    def _batch(self, fed: Structure, records: int, ids: list[Any] | None) -> Batch | None:
        features, labels, weights = self._split(fed)
        leaves = tf.nest.flatten((features, labels, weights))
        counts = {(shape_of(leaf) or (-1,))[0] for leaf in leaves if leaf is not None}
        if len(counts) != 1 or -1 in counts:
            raise UserError(
                f"{self._module.path}: tensors from {self._name} differ in their first dimension, or lack it"
            )
        (count,) = counts
        if count > records:
            raise UserError(
                f"{self._module.path}: {self._name} made {count} elements of {records} records",
                hint="feed() may drop records, but it must not add any: return at most one element for each record.",
            )
        if self._spec is None:
            self._spec = self._make_spec(features, labels, weights)
        if count == 0:
            return None
        return Batch(features=features, labels=labels, weights=weights, count=count, spec=self._spec, ids=ids)

    def _make_spec(self, features: Structure, labels: Structure, weights: Structure) -> BatchSpec:
        """What the traced function promises for every batch; in eager mode what the first batch shows."""
        if isinstance(self._function, TracedFunction):
            features, labels, weights = self._split(self._function.structured_outputs)
        opened = tf.nest.map_structure(
            lambda leaf: None if leaf is None else open_spec(leaf), (features, labels, weights)
        )
        return BatchSpec(features=opened[0], labels=opened[1], weights=opened[2], has_labels=self._has_labels)

    def _split(self, fed: Structure) -> tuple[Structure, Structure, Structure]:
        """Features, labels and weights; in mode ``predict`` the features alone, whatever else the function gives."""
        if isinstance(fed, tuple) and len(fed) in (2, 3):
            if self._mode == "predict":
                return fed[0], None, None
            return fed[0], fed[1], fed[2] if len(fed) == 3 else None
        if isinstance(fed, tuple) and len(fed) == 1:
            fed = fed[0]
        if self._mode == "predict" and not isinstance(fed, tuple):
            return fed, None, None
        raise UserError(
            f"{self._module.path}: {self._name} must give (features, labels) or (features, labels, sample_weight), "
            f"not {type(fed).__name__}{f' of {len(fed)}' if isinstance(fed, tuple) else ''}"
        )
