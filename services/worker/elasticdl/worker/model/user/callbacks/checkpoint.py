"""Keras' ``ModelCheckpoint`` callback: its own rules decide, and the job writes the model that they ask for."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import scheme_of, to_uri


def is_checkpoint(callback: Any) -> bool:
    """Whether a callback is Keras' own or a subclass, which may have more hooks of epochs."""
    return isinstance(callback, keras.callbacks.ModelCheckpoint)


def check_checkpoint(callback: Any, path: Path) -> None:
    """Refuse what a job can't write."""
    kind = type(callback).__name__
    if callback.save_freq != "epoch":
        raise UserError(
            f"{path}: {kind} can't work with this save_freq, because no process sees every batch",
            hint="Remove save_freq, or give save_freq='epoch'.",
        )
    if not callback.filepath.endswith((".keras", ".weights.h5")):
        raise UserError(
            f"{path}: {kind} can't write {callback.filepath!r}, because jobs don't write Keras' former HDF5 format",
            hint="Give a filepath that ends in .keras. With save_weights_only=True it ends in .weights.h5.",
        )


def check_file_name(callback: Any, path: Path, metrics: Collection[str]) -> None:
    """Format the name of a file as Keras will do at the end of an epoch.

    Raises:
        UserError: the name asks for a result that the job does not have, or formats one in a way that does not exist.
    """
    place = f"{path}: {type(callback).__name__} can't format its filepath {callback.filepath!r}"
    try:
        callback.filepath.format(epoch=1, **dict.fromkeys(metrics, 0.5))
    except (KeyError, IndexError) as error:
        name = error.args[0] if isinstance(error, KeyError) else "a field without a name"
        raise UserError(
            f"{place}: an epoch has no result {name}", hint=f"It can have: {', '.join(['epoch', *metrics])}."
        ) from error
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{place}: {error}", hint="Use fields such as {epoch:02d} and {loss:.2f}.") from error


def folder_of(callbacks: Sequence[Any]) -> str:
    """URI of the folder in which the first ``ModelCheckpoint`` writes files; empty if absent."""
    for callback in callbacks:
        if is_checkpoint(callback):
            return to_uri(os.path.dirname(callback.filepath) or ".")
    return ""


def write_through_store(callback: Any) -> None:
    """Have a ``ModelCheckpoint`` whose files are in object storage make no folders, which Keras would try to do."""
    if scheme_of(to_uri(callback.filepath)) != "file":
        callback._save_model = partial(_save_model, callback)


def _save_model(callback: Any, epoch: int, batch: int | None, logs: Mapping[str, float]) -> None:
    filepath = callback._get_file_path(epoch, batch, logs)
    if callback._should_save_model(epoch, batch, logs, filepath):
        save = callback.model.save_weights if callback.save_weights_only else callback.model.save
        save(filepath, overwrite=True)
