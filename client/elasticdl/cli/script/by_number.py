"""Data of ``fit()`` that workers read by number: it is sent to them as an object, and no pass over it is written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.cli.script import arrays, streams
from elasticdl.cli.script.known_datasets import NumberedDataset, numbered
from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import Array, Layout, laid_out
from elasticdl.shipping.numbered import NUMBER, Batches, Continued, Sliced, Source
from elasticdl.shipping.shipped import dump_source

BATCH_SIZE = 32
"""Records of a batch of a ``fit()`` without ``batch_size``."""


def training_source(given: Mapping[str, Any], epochs: int) -> NumberedDataset | None:
    """The source of the training data of a call; None: workers can't read it by number, or need not.

    Args:
        given: the arguments of ``fit()``, by their names.
        epochs: that the job trains.

    Raises:
        UserError: the data has no batches.
    """
    x, steps, shuffle = given["x"], given["steps_per_epoch"], given["shuffle"]
    if isinstance(x, keras.utils.PyDataset):
        is_endless = x.num_batches is None
        found: NumberedDataset | None = NumberedDataset(
            _batches(x, steps * epochs if is_endless and steps else None), shuffle and not is_endless
        )
    elif isinstance(x, tf.data.Dataset):
        found = numbered(x)
    elif steps and not streams.is_stream(x):
        layout, columns = laid_out(x, given["y"], given["sample_weight"])
        arrays.records_of(columns)
        found = NumberedDataset(Sliced(layout, columns, given["batch_size"] or BATCH_SIZE), shuffle)
    else:
        return None
    if found is None or steps is None:
        return found
    if steps < -(-found.source.count // found.source.batch_size):
        return NumberedDataset(Continued(found.source, steps, shuffled=found.shuffled), shuffled=False)
    return None if isinstance(found.source, Sliced) else found


def validation_source(given: Any, steps: int | None) -> NumberedDataset | None:
    """The source of validation data, the first ``steps`` batches of it; None: workers can't read it by number.

    Raises:
        UserError: the data has no batches.
    """
    if isinstance(given, keras.utils.PyDataset):
        return NumberedDataset(_batches(given, steps), shuffled=False)
    return numbered(given) if isinstance(given, tf.data.Dataset) and steps is None else None


def _batches(given: Any, most: int | None) -> Batches:
    known = [one for one in (given.num_batches, most) if one is not None]
    if not known:
        raise UserError("the PyDataset of fit() has no end", hint="Give fit() steps_per_epoch.")
    if min(known) < 1:
        raise UserError(f"the {type(given).__name__} of fit() gives no batch")
    return Batches(given, min(known))


def shipped(source: Source, folder: Path, script: Path, purpose: str) -> bytes | None:
    """A source as bytes; None, with a message: it can't travel.

    Args:
        folder: of the job.
        script: modules in its folder travel by value.
        purpose: ``TRAINING`` or ``VALIDATION``.
    """
    try:
        return dump_source(folder / "model", script, purpose, source)
    except UserError as error:
        sys.stdout.write(f"{error}. So it is read once, here, and written to disk; on_epoch_end() is not called.\n")
        sys.stdout.flush()
        return None


def first_of(source: Source) -> tuple[Layout, dict[str, Array]]:
    """The layout and the columns of a batch, before any epoch has begun."""
    if isinstance(source, Continued):
        source = source.source
    batch = source.read(np.arange(min(source.batch_size, source.count)))
    return laid_out(*keras.utils.unpack_x_y_sample_weight(batch))


def numbers_of(source: Source) -> dict[str, Array]:
    """The columns of the job's data file."""
    return {NUMBER: np.arange(source.count)}
