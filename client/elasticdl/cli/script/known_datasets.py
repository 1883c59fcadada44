"""Datasets that Keras' utilities have made, taken apart, so that workers read their files or windows by number."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from keras.src.utils import dataset_utils, image_dataset_utils  # Keras has no public names for what loads one file.

from elasticdl.cli.script.replacing import MADE_BY
from elasticdl.shipping.columns import Array
from elasticdl.shipping.keras_datasets import Files, Mapped, ReadText, Windows
from elasticdl.shipping.numbered import Source

_UNCHANGED = ("PrefetchDataset", "CacheDataset", "OptionsDataset", "ModelDataset")
_BATCHES = ("BatchDataset", "ParallelBatchDataset")
_MAPS = ("MapDataset", "ParallelMapDataset")
_SHUFFLES = ("ShuffleDataset",)
_IMAGE_OPTIONS = (
    "image_size", "num_channels", "interpolation", "data_format", "crop_to_aspect_ratio", "pad_to_aspect_ratio",
)  # fmt: skip


class NumberedDataset(NamedTuple):
    """A dataset that is read by number.

    Attributes:
        shuffled: whether the order of its records was random, so that the job shuffles them.
    """

    source: Source
    shuffled: bool


def numbered(dataset: Any) -> NumberedDataset | None:
    """The source of a ``tf.data.Dataset`` that a utility of Keras has made, with what the script has added.

    Batches may be mapped, cached and prefetched. None: the dataset is another one, or something else was done with it.
    """
    functions: list[Any] = []
    batch_size, shuffled = 0, False
    while (made_by := getattr(dataset, MADE_BY, None)) is None:
        kind = type(dataset).__name__.strip("_")
        inputs = dataset._inputs()
        if len(inputs) != 1 or (kind in _MAPS and batch_size):
            return None
        if kind in _MAPS:
            functions.insert(0, dataset._map_func._func)
        elif kind in _BATCHES and not batch_size and not bool(dataset._drop_remainder):
            batch_size = int(dataset._batch_size)
        elif kind in _SHUFFLES:
            shuffled = True
        elif kind not in _UNCHANGED:
            return None
        (dataset,) = inputs
    name, given = made_by
    batch_size = batch_size or given.get("batch_size") or 0
    if not batch_size:
        return None
    source = _windows(given, batch_size) if "timeseries" in name else _files(given, batch_size)
    if source is None or not source.count:
        return None
    return NumberedDataset(Mapped(source, functions) if functions else source, shuffled or bool(given["shuffle"]))


def _windows(given: Mapping[str, Any], batch_size: int) -> Source | None:
    if given["batch_size"] not in (None, batch_size):
        return None
    part = slice(given["start_index"], given["end_index"])
    return Windows(
        np.asarray(given["data"][part]),
        None if given["targets"] is None else np.asarray(given["targets"][part]),
        length=given["sequence_length"],
        rate=given["sampling_rate"],
        stride=given["sequence_stride"],
        batch_size=batch_size,
    )


def _files(given: Mapping[str, Any], batch_size: int) -> Source | None:
    labels = _labels(given) if given["label_mode"] else None
    if "file_paths" in given:
        return Files(given["file_paths"], labels, ReadText(given["max_length"]), batch_size)
    load = getattr(image_dataset_utils, "_load_image_tf", None)
    if load is None or not all(name in given for name in _IMAGE_OPTIONS):
        return None
    options = {name: given[name] for name in _IMAGE_OPTIONS}
    return Files(given["image_paths"], labels, functools.partial(load, **options), batch_size)


def _labels(given: Mapping[str, Any]) -> Array:
    encoded = dataset_utils.labels_to_dataset_tf(given["labels"], given["label_mode"], given["num_classes"])
    found: Array = encoded.batch(len(given["labels"])).get_single_element().numpy()
    return found
