"""Data of ``fit()`` that workers read by number: it is sent to them as an object, and no pass over it is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.cli.script import streams
from elasticdl.cli.script.known_datasets import NumberedDataset, numbered
from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import Array, Layout, laid_out
from elasticdl.shipping.numbered import NUMBER, Batches, Source
from elasticdl.shipping.shipped import dump_source


def source_of(given: Any, steps: int | None, shuffle: bool, *, all_steps: bool = True) -> NumberedDataset | None:
    """The source of an argument of ``fit()``; None: workers can't read it by number.

    Args:
        steps: batches of an epoch; None: all.
        shuffle: what ``fit()`` was given, which counts for a ``PyDataset``.
        all_steps: ``steps`` has to be the number of batches of data that has an end.

    Raises:
        UserError: the data has no batches, or their number is not ``steps``.
    """
    if isinstance(given, tf.data.Dataset):
        return numbered(given) if steps is None else None
    if not isinstance(given, keras.utils.PyDataset):
        return None
    count = given.num_batches
    if count is None and steps is None:
        raise UserError("the PyDataset of fit() has no end", hint="Give fit() steps_per_epoch.")
    if all_steps and None not in (count, steps) and steps != count:
        raise UserError(
            f"steps_per_epoch={steps} of fit() with a PyDataset of {count:,} batches", hint=streams.STEPS_HINT
        )
    count = min(one for one in (count, steps) if one is not None)
    if count < 1:
        raise UserError(f"the {type(given).__name__} of fit() gives no batch")
    return NumberedDataset(Batches(given, count), shuffle)


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
    """The layout and the columns of the first batch."""
    batch = source.read(np.arange(min(source.batch_size, source.count)))
    return laid_out(*keras.utils.unpack_x_y_sample_weight(batch))


def numbers_of(source: Source) -> dict[str, Array]:
    """The columns of the job's data file."""
    return {NUMBER: np.arange(source.count)}
