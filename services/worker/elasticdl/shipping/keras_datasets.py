"""What Keras' utilities make datasets of, read by number: files in folders, and windows over a series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.shipping.columns import Array
from elasticdl.shipping.numbered import Numbers, SameEachEpoch, Source


class Files(SameEachEpoch):
    """Texts or images of ``keras.utils.text_dataset_from_directory`` and its like: a number stands for a file.

    Args:
        load: (path) -> the content of a record.
        labels: of each file; None: there are none.
    """

    def __init__(self, paths: Sequence[str], labels: Array | None, load: Callable[[str], Any], batch_size: int) -> None:
        self.name = "the dataset of files"
        self.count, self.batch_size = len(paths), batch_size
        self._paths = np.array([str(Path(path).absolute()) if "://" not in path else path for path in paths])
        self._labels, self._load = labels, load

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        contents = tf.stack([self._load(str(path)) for path in self._paths[numbers]])
        return contents if self._labels is None else (contents, self._labels[numbers])


class Windows(SameEachEpoch):
    """``keras.utils.timeseries_dataset_from_array``: a number stands for a window.

    Args:
        data: all steps of the series, (steps, ...).
        targets: (at least as many as windows begin at different steps, ...); None: there are none.
        length: steps of a window, of which each is ``rate`` steps after the one before.
        stride: steps between the beginnings of two windows.
    """

    name = "the dataset of windows"

    def __init__(
        self, data: Array, targets: Array | None, *, length: int, rate: int, stride: int, batch_size: int
    ) -> None:
        begins = len(data) - (length - 1) * rate
        if targets is not None:
            begins = min(begins, len(targets))
        self.count, self.batch_size = max(-(-begins // stride), 0), batch_size
        self._data, self._targets = data, targets
        self._stride, self._steps = stride, np.arange(length) * rate

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        begins = numbers * self._stride
        windows = self._data[begins[:, None] + self._steps]
        return windows if self._targets is None else (windows, self._targets[begins])


class Mapped(SameEachEpoch):
    """Another source, whose batches go through the functions of ``map()``. Random numbers differ between epochs."""

    def __init__(self, source: Source, functions: Sequence[Callable[..., Any]]) -> None:
        self.name, self.count, self.batch_size = source.name, source.count, source.batch_size
        self._source, self._functions = source, functions

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        batch = tf.nest.map_structure(tf.convert_to_tensor, self._source.read(numbers))
        for function in self._functions:
            batch = function(*batch) if isinstance(batch, tuple) else function(batch)
        return batch


class ReadText:
    """Reads a file of text as ``text_dataset_from_directory`` does.

    Args:
        bytes_max: of the beginning of the file; None: all of it.
    """

    def __init__(self, bytes_max: int | None) -> None:
        self._bytes_max = bytes_max

    def __call__(self, path: str) -> Any:
        """The content, a scalar string tensor."""
        return tf.constant(tf.io.gfile.GFile(path, "rb").read()[: self._bytes_max])
