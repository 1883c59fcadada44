"""Data that ``fit()`` is given batch by batch: one pass over it is written to disk, with the memory of one batch."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import GeneratorType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from elasticdl.cli.script import arrays
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.words import count, size
from elasticdl.shipping.columns import Array, Layout, laid_out

_UNCHANGED = ("PrefetchDataset", "OptionsDataset", "ModelDataset")
"""Datasets that give what they are given."""
_RANDOM = ("Random", "Rng", "Multinomial")
"""Parts of the names of TensorFlow's operations that draw random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a pass over a data set.

    Attributes:
        bytes_max: largest data set that is copied to disk.
        progress_s: seconds between two lines that say how far it is.
    """

    bytes_max: int = 64 << 30
    progress_s: float = 5.0


_LIMITS = Limits()


class Stream(NamedTuple):
    """What one pass has written.

    Attributes:
        columns: memory-mapped files.
        batch_size: records of the first batch.
        sizes: records of each batch.
        shuffled: whether the order of the data was random, so that the job shuffles it.
    """

    layout: Layout
    columns: dict[str, Array]
    batch_size: int
    sizes: list[int]
    shuffled: bool


def is_stream(given: Any) -> bool:
    """Whether an argument of ``fit()`` is a data set that gives batches.

    Raises:
        UserError: it is one that no job can read.
    """
    kind = type(given)
    if any(base.__module__.partition(".")[0] == "torch" and base.__name__ == "DataLoader" for base in kind.__mro__):
        raise UserError(
            "fit() is given a DataLoader of PyTorch, which workers without PyTorch can't read",
            hint="Give fit() its arrays, or a keras.utils.PyDataset.",
        )
    return isinstance(given, tf.data.Dataset | keras.utils.PyDataset | GeneratorType)


def is_drawn(given: Any, steps: int | None) -> bool:
    """Whether epochs of ``fit()`` read different batches: each continues the one before, or draws random numbers.

    Args:
        steps: batches of an epoch; None: one pass.
    """
    if not isinstance(given, tf.data.Dataset):
        return isinstance(given, GeneratorType)
    batches = int(given.cardinality())
    if batches == tf.data.INFINITE_CARDINALITY or (steps is not None and (batches < 0 or steps < batches)):
        return True
    return any(_is_random(part) for part in _parts(given))


def of_one_pass(dataset: Any, steps: int | None, epochs: int) -> Any:
    """A dataset without its ``repeat()``, if each epoch of so many batches is one pass over it; else as it is."""
    inner = dataset
    while isinstance(inner, tf.data.Dataset):
        kind = type(inner).__name__.strip("_")
        if kind == "RepeatDataset":
            (inner,) = inner._inputs()
            if steps is None or int(inner.cardinality()) != steps:
                return dataset
            batches = int(dataset.cardinality())
            return inner if batches == tf.data.INFINITE_CARDINALITY or batches >= steps * epochs else dataset
        if kind not in _UNCHANGED:
            break
        (inner,) = inner._inputs()
    return dataset


def draw(
    given: Any,
    steps: int | None,
    epochs: int,
    folder: Path,
    *,
    option: str = "steps_per_epoch",
    limits: Limits = _LIMITS,
) -> Stream:
    """Write the batches of all epochs, of data for which ``is_drawn``, into a folder.

    Args:
        steps: batches of an epoch; None: those of one pass.

    Raises:
        UserError: ``steps`` is None and the data has no end, or a generator ends before; as of ``read``.
    """
    is_generator = isinstance(given, GeneratorType)
    if steps is None and (is_generator or int(given.cardinality()) == tf.data.INFINITE_CARDINALITY):
        what = "generator of fit() has no length" if is_generator else "dataset of fit() has no end"
        raise UserError(f"the {what}", hint=f"Give fit() {option}, or remove repeat().")
    if not is_generator:
        return _written(_passes(given, steps, epochs), folder, limits)
    assert steps is not None
    stream = _written(itertools.islice(given, steps * epochs), folder, limits)
    if len(stream.sizes) < steps * epochs:
        raise UserError(
            f"the generator of fit() ended after {count(len(stream.sizes), 'batch', 'batches')}, and "
            f"{count(epochs, 'epoch')} of {count(steps, 'step')} need {steps * epochs:,}",
            hint="Let it give more batches, or give fit() fewer epochs or steps.",
        )
    return stream


def _passes(dataset: Any, steps: int | None, epochs: int) -> Iterator[Any]:
    """The batches of all epochs; those of a first pass that is shorter than an epoch are one, as in ``fit()``."""
    taken, before = 0, -1
    while taken > before and (steps is None or taken < steps * epochs):  # A pass without a batch would never end.
        before = taken
        for batch in dataset if steps is None else dataset.take(steps * epochs - taken):
            yield batch
            taken += 1
        steps = taken if steps is None else min(steps, taken)


def read(
    given: Any,
    steps: int | None,
    folder: Path,
    *,
    shuffle: bool = True,
    option: str = "steps_per_epoch",
    limits: Limits = _LIMITS,
) -> Stream:
    """Write one pass over a data set into a folder.

    Args:
        steps: batches of an epoch; None: all.
        shuffle: what ``fit()`` was given, which counts for a ``PyDataset``.
        option: the argument of ``fit()`` that is ``steps``.

    Raises:
        UserError: it has no end, is too large, or its batches differ in structure.
    """
    batches: Iterable[Any]
    if isinstance(given, GeneratorType):
        return draw(given, steps, 1, folder, option=option, limits=limits)
    if isinstance(given, tf.data.Dataset):
        batches, shuffled = (
            _of_dataset(given, steps, option),
            any("Shuffle" in type(one).__name__ for one in _parts(given)),
        )
    else:
        batches, shuffled = _of_py_dataset(given, steps, option), shuffle
    return _written(batches, folder, limits)._replace(shuffled=shuffled)


def _of_dataset(given: Any, steps: int | None, option: str) -> Iterable[Any]:
    known = int(given.cardinality())
    if known == tf.data.INFINITE_CARDINALITY and steps is None:
        raise UserError("the dataset of fit() has no end", hint=f"Give fit() {option}, or remove repeat().")
    taken: Iterable[Any] = given if steps is None else given.take(steps)
    return taken


def _of_py_dataset(given: Any, steps: int | None, option: str) -> Iterator[Any]:
    batches = given.num_batches if steps is None else steps
    if batches is None:
        raise UserError("the PyDataset of fit() has no end", hint=f"Give fit() {option}.")
    return (given[number] for number in range(batches))


def _parts(dataset: Any) -> Iterator[Any]:
    yield dataset
    for part in dataset._inputs():
        yield from _parts(part)


def _is_random(part: Any) -> bool:
    """Whether the function of a ``map()`` draws random numbers."""
    function = getattr(part, "_map_func", None)
    graph = getattr(getattr(function, "function", None), "graph", None)
    if graph is None:
        return False
    definition = graph.as_graph_def()
    nodes = itertools.chain(definition.node, *(one.node_def for one in definition.library.function))
    return any(name in node.op for node in nodes for name in _RANDOM)


def _written(batches: Iterable[Any], folder: Path, limits: Limits = _LIMITS) -> Stream:
    layout: Layout | None = None
    kinds: dict[str, tuple[Any, tuple[int, ...]]] = {}
    texts: dict[str, list[Array]] = {}
    sizes: list[int] = []
    written = 0
    said_s = time.monotonic()
    with file_errors(f"the data of fit() can't be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for batch in batches:
            found, columns = laid_out(*keras.utils.unpack_x_y_sample_weight(batch))
            if layout is None:
                layout = found
                kinds = {name: (array.dtype, array.shape[1:]) for name, array in columns.items()}
            _check(layout, kinds, found, columns)
            for name, array in columns.items():
                if array.dtype.kind in "SU":
                    texts.setdefault(name, []).append(array)
                else:
                    with (folder / f"{name}.part").open("ab") as file:
                        np.ascontiguousarray(array).tofile(file)
                written += array.nbytes
            sizes.append(arrays.records_of(columns))
            if written > limits.bytes_max:
                raise UserError(
                    f"the dataset of fit() has more than {size(limits.bytes_max)}",
                    hint="Write it to files, and train a model file on them: elasticdl train. If the epochs differ by "
                    "random numbers in map() alone, put those into the model, as keras.layers.RandomFlip(): then one "
                    "pass is read.",
                )
            if time.monotonic() > said_s + limits.progress_s:
                said_s = time.monotonic()
                sys.stdout.write(f"Reading the dataset of fit(): {sum(sizes):,} records, {size(written)}\n")
                sys.stdout.flush()
    if layout is None:
        raise UserError("the dataset of fit() gives no batch")
    columns = {
        name: np.concatenate(texts[name])
        if name in texts
        else np.memmap(folder / f"{name}.part", kind, "r", shape=(sum(sizes), *shape))
        for name, (kind, shape) in kinds.items()
    }
    return Stream(layout, columns, sizes[0], sizes, shuffled=False)


def _check(
    layout: Layout,
    kinds: Mapping[str, tuple[Any, tuple[int, ...]]],
    found: Layout,
    columns: Mapping[str, Array],
) -> None:
    """Refuse a batch that is not like the first one."""
    if found != layout:
        raise UserError("the batches of the dataset of fit() differ in their structure")
    for name, array in columns.items():
        kind, shape = kinds[name]
        if array.dtype != kind and array.dtype.kind not in "SU":
            raise UserError(f"the batches of the dataset of fit() differ: {name} is {array.dtype} after {kind}")
        if array.shape[1:] != shape:
            raise UserError(
                f"the batches of the dataset of fit() differ: {name} has the shape {array.shape[1:]} after {shape}",
                hint="Pad all records to one length: padded_batch(..., padded_shapes=...).",
            )
