"""The data of one call of ``fit()``: what its job reads, and how."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import GeneratorType
from typing import Any

import keras
import numpy as np

from elasticdl.cli.script import arrays, by_number, streams
from elasticdl.cli.script.by_number import BATCH_SIZE
from elasticdl.cli.script.known_datasets import NumberedDataset
from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import Array, Layout, laid_out
from elasticdl.shipping.numbered import Batches, Continued, Drawn, InBatches, Sliced, Source, structured
from elasticdl.shipping.shipped import TRAINING, VALIDATION

Columns = dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallData:
    """The data of a call of ``fit()``.

    Attributes:
        layout: how columns become ``x``, ``y`` and ``sample_weight``.
        training, validation: columns of the job's data files: those of the layout, or the numbers of records.
        batch_size: records of the data files in a batch.
        shuffle: whether each epoch has another order.
        few: records of a batch, in the columns of the layout.
        sources: ``TRAINING`` or ``VALIDATION`` -> what workers read by number.
    """

    layout: Layout
    training: Columns
    validation: Columns | None
    batch_size: int
    shuffle: bool
    few: Columns
    sources: Mapping[str, bytes] = field(default_factory=dict)


def data_of(given: Mapping[str, Any], folder: Path, script: Path, *, reads_here: bool = True) -> CallData:
    """The data of a call.

    Args:
        given: the arguments of ``fit()``, by their names.
        folder: of the job; what is not in memory, and can't be read by number, is written into it.
        script: modules in its folder travel by value.
        reads_here: whether workers see the files of this machine; else all of the data is written.

    Raises:
        UserError: no job can train with it.
    """
    x = streams.of_one_pass(given["x"], given["steps_per_epoch"], given["epochs"] - given["initial_epoch"])
    if x is not given["x"]:
        given = {**given, "x": x, "steps_per_epoch": None}
    if given["steps_per_epoch"] and given["validation_split"] and not streams.is_stream(given["x"]):
        given = _split(given)
    _refuse_data_that_continues(given, reads_here=reads_here)
    by_numbers = _by_number(given, folder, script) if reads_here else None
    return _in_columns(given, folder) if by_numbers is None else by_numbers


def few_of(given: Mapping[str, Any]) -> tuple[Layout, Columns]:
    """The layout and the records of a batch of a call, without anything that is written."""
    x = given["x"]
    if streams.is_stream(x):
        batch = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
        return laid_out(*keras.utils.unpack_x_y_sample_weight(batch))
    layout, columns = laid_out(x, given["y"], given["sample_weight"])
    return layout, {name: array[: given["batch_size"] or BATCH_SIZE] for name, array in columns.items()}


def _by_number(given: Mapping[str, Any], folder: Path, script: Path) -> CallData | None:
    epochs = given["epochs"] - given["initial_epoch"]
    found = by_number.training_source(given, epochs)
    if found is None and streams.is_drawn(given["x"], given["steps_per_epoch"]):
        _refuse_split(given)
        found = _drawn(given, epochs, folder)
    if found is None:
        return None
    source = found.source
    _refuse_split(given)
    content = by_number.shipped(source, folder, script, TRAINING)
    if content is None:
        return None
    layout, few = by_number.first_of(source)
    sources, validation = {TRAINING: content}, None
    if given["validation_data"] is not None:
        other, sources[VALIDATION] = _other_source(given, source, folder, script)
        layout, few, _ = _with_weights(layout, few, by_number.first_of(other)[1])
        validation = by_number.numbers_of(other)
    return CallData(
        layout=layout,
        training=by_number.numbers_of(source),
        validation=validation,
        batch_size=source.batch_size,
        shuffle=found.shuffled,
        few=few,
        sources=sources,
    )


def _drawn(given: Mapping[str, Any], epochs: int, folder: Path) -> NumberedDataset:
    stream = streams.draw(given["x"], given["steps_per_epoch"], epochs, folder / "stream")
    steps = len(stream.sizes) // epochs
    return NumberedDataset(Drawn(stream.layout, stream.columns, stream.sizes, steps), shuffled=False)


def pass_over(given: Mapping[str, Any], batches: int) -> None:
    """Read what a call took from a generator in a former run of the script, except for some batches, and drop it."""
    if isinstance(given["x"], GeneratorType) and given["steps_per_epoch"]:
        epochs = given["epochs"] - given["initial_epoch"]
        deque(itertools.islice(given["x"], given["steps_per_epoch"] * epochs - batches), maxlen=0)


def _other_source(given: Mapping[str, Any], source: Source, folder: Path, script: Path) -> tuple[Source, bytes]:
    """The validation data. As in the training data, its numbers stand for batches, or for records."""
    in_batches = isinstance(source, Batches | Continued | Drawn)
    found = by_number.validation_source(given["validation_data"], given["validation_steps"])
    if found is not None and (in_batches or not isinstance(found.source, Batches)):
        other = InBatches(found.source) if in_batches and not isinstance(found.source, Batches) else found.source
        content = by_number.shipped(other, folder, script, VALIDATION)
        if content is not None:
            return other, content
    batch_size = given["validation_batch_size"] or given["batch_size"] or BATCH_SIZE
    sliced = Sliced(*_validation(given, batch_size, folder), batch_size)
    other = InBatches(sliced) if in_batches else sliced
    content = by_number.shipped(other, folder, script, VALIDATION)
    assert content is not None
    return other, content


def _in_columns(given: Mapping[str, Any], folder: Path) -> CallData:
    """Arrays, and data sets of which one pass is written into the folder."""
    batch_size = given["batch_size"] or BATCH_SIZE
    shuffle, split = given["shuffle"], given["validation_split"]
    if streams.is_stream(given["x"]):
        _refuse_split(given)
        stream = streams.read(given["x"], given["steps_per_epoch"], folder / "stream", shuffle=shuffle)
        layout, training, batch_size, shuffle = stream.layout, stream.columns, stream.batch_size, stream.shuffled
    else:
        layout, training = laid_out(given["x"], given["y"], given["sample_weight"])
        steps = -(-arrays.records_of(training) // batch_size)
        if (given["steps_per_epoch"] or steps) < steps:
            raise UserError(
                f"steps_per_epoch={given['steps_per_epoch']} of fit() with arrays of {steps:,} batches, for which "
                "workers have to see the files of this machine",
                hint="Leave it out: an epoch of a job is one pass over the data.",
            )
    validation = None
    if given["validation_data"] is not None:
        validation = _validation(given, batch_size, folder)[1]
    elif split:
        training, validation = _parts(training, split)
    layout, training, validation = _with_weights(layout, training, validation)
    return CallData(
        layout=layout,
        training=training,
        validation=validation,
        batch_size=batch_size,
        shuffle=shuffle,
        few={name: array[:batch_size] for name, array in training.items()},
    )


def _parts(columns: Columns, split: float) -> tuple[Columns, Columns]:
    """The training and the validation part of arrays."""
    records = arrays.records_of(columns)
    at = int(np.floor(records * (1.0 - split)))
    if at in (0, records):
        raise UserError(f"validation_split={split} of fit() leaves one part without records")
    return {name: one[:at] for name, one in columns.items()}, {name: one[at:] for name, one in columns.items()}


def _split(given: Mapping[str, Any]) -> dict[str, Any]:
    """A call with arrays and ``validation_split``, with two data sets in place of that."""
    layout, columns = laid_out(given["x"], given["y"], given["sample_weight"])
    (x, y, weights), validation = (structured(layout, part) for part in _parts(columns, given["validation_split"]))
    parts = {"x": x, "y": y, "sample_weight": weights, "validation_split": 0.0}
    return {**given, **parts, "validation_data": keras.utils.pack_x_y_sample_weight(*validation)}


def _refuse_data_that_continues(given: Mapping[str, Any], *, reads_here: bool) -> None:
    if given["epochs"] - given["initial_epoch"] == 1:
        return
    if isinstance(given["validation_data"], GeneratorType):
        raise UserError(
            "the validation data of fit() is a generator, of which each evaluation would see other batches",
            hint="Give arrays or a tf.data.Dataset, so that all epochs are compared on the same data.",
        )
    if streams.is_drawn(given["x"], given["steps_per_epoch"]) and not reads_here:
        what = "generator" if isinstance(given["x"], GeneratorType) else "dataset whose epochs differ"
        raise UserError(
            f"fit() is given a {what} and several epochs, for which workers have to see the files of this machine",
            hint="Give a job on Kubernetes arrays, or a tf.data.Dataset without random numbers in map() of which each "
            "epoch is one pass.",
        )


def _refuse_split(given: Mapping[str, Any]) -> None:
    if given["validation_split"] and given["validation_data"] is None:
        raise UserError(
            "fit() is given validation_split and a dataset",
            hint="Divide the dataset with take() and skip(), and give one part as validation_data.",
        )


def _validation(given: Mapping[str, Any], batch_size: int, folder: Path) -> tuple[Layout, Columns]:
    data, steps = given["validation_data"], given["validation_steps"]
    if streams.is_stream(data):
        stream = streams.read(data, steps, folder / "validation_stream", option="validation_steps")
        return stream.layout, stream.columns
    layout, columns = laid_out(*keras.utils.unpack_x_y_sample_weight(data))
    arrays.records_of(columns)
    if not steps:
        return layout, columns
    kept = steps * (given["validation_batch_size"] or batch_size)
    return layout, {name: array[:kept] for name, array in columns.items()}


def _with_weights(layout: Layout, training: Columns, validation: Columns | None) -> tuple[Layout, Columns, Any]:
    """Both data sets with the same columns: a sample weight of 1 changes nothing."""
    if validation is None or training.keys() == validation.keys():
        return layout, training, validation
    missing = training.keys() ^ validation.keys()
    if any(not name.startswith("sample_weight") for name in missing):
        raise UserError(
            f"the training data of fit() has {', '.join(training)}, its validation data {', '.join(validation)}"
        )
    for one, other in ((training, validation), (validation, training)):
        for name in one.keys() - other.keys():
            other[name] = np.ones((len(next(iter(other.values()))), *one[name].shape[1:]), one[name].dtype)
    return Layout(features=layout.features, labels=layout.labels, weights="sample_weight"), training, validation
