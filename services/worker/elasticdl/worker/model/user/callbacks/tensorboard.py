"""Keras' ``TensorBoard`` callback: the master writes its files, as with ``--tensorboard_log_dir``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import to_uri

GRAPH_NOTE = "TensorBoard: the graph of the model is not written, because the files are written without TensorFlow"


def is_tensorboard(callback: Any) -> bool:
    """Whether a callback is Keras' own; a subclass may have hooks that need the model."""
    return type(callback) is keras.callbacks.TensorBoard


def check_tensorboard(callback: Any, path: Path) -> None:
    """Refuse what only a process with the whole model, or that sees every batch, could write.

    Args:
        callback: Keras' ``TensorBoard``.
        path: the model file.

    Raises:
        UserError: names the argument and the reason.
    """
    weights = "the weights are on the parameter servers"
    batches = "no process sees every batch"
    refused = {
        "histogram_freq": (callback.histogram_freq, 0, weights),
        "embeddings_freq": (callback.embeddings_freq, 0, weights),
        "update_freq": (callback.update_freq, "epoch", batches),
        "profile_batch": (callback._should_trace, False, batches),
    }
    for argument, (value, possible, reason) in refused.items():
        if value != possible:
            default = repr(possible) if possible else "0"
            raise UserError(
                f"{path}: TensorBoard can't work with this {argument}, because {reason}",
                hint=f"Remove {argument}, or give {argument}={default}.",
            )


def log_dir_of(callbacks: Sequence[Any], path: Path) -> str:
    """URI of the folder of the ``TensorBoard`` callback; empty: there is none.

    Args:
        callbacks: of a model file.
        path: the model file.

    Raises:
        UserError: several name different folders.
    """
    folders = sorted({callback.log_dir for callback in callbacks if is_tensorboard(callback)})
    if len(folders) > 1:
        raise UserError(
            f"{path}: several TensorBoard callbacks have different folders: {', '.join(folders)}",
            hint="Keep one of them.",
        )
    return to_uri(folders[0]) if folders else ""
