"""Keras' ``TensorBoard`` callback: the master writes its curves, as with ``--tensorboard_log_dir``.

Histograms of the weights are written by the worker that runs the hooks of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import to_uri

GRAPH_NOTE = "TensorBoard: the graph of the model is written with the first histograms, so give histogram_freq"


class WeightHistograms(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes histograms of the weights every ``histogram_freq`` epochs, and with the first ones the graph.

    Args:
        histogram_freq: epochs between two histograms; Keras writes those of epochs 0, N, 2N...
    """

    def __init__(self, histogram_freq: int, *, write_graph: bool) -> None:
        super().__init__()
        self.histogram_freq = histogram_freq
        self.write_graph = write_graph

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras' signature)
        """Write the file of this epoch, from 0, if it is due; a second attempt replaces it."""
        if epoch % self.histogram_freq == 0:
            self.model.write_summaries(epoch, graph=self.write_graph and epoch == 0)


def histograms_of(callback: Any) -> WeightHistograms | None:
    """The hooks of a ``TensorBoard`` callback; None: it has no histograms, so none of its hooks run."""
    if not callback.histogram_freq:
        return None
    return WeightHistograms(callback.histogram_freq, write_graph=bool(callback.write_graph))


def is_tensorboard(callback: Any) -> bool:
    """Whether a callback is Keras' own; a subclass may have hooks that need the model."""
    return type(callback) is keras.callbacks.TensorBoard


def check_tensorboard(callback: Any, path: Path) -> None:
    """Refuse what only a process with the whole model, or that sees every batch, could write."""
    weights = "the weights are on the parameter servers"
    batches = "no process sees every batch"
    refused = {
        "embeddings_freq": (callback.embeddings_freq, 0, weights),
        "write_images": (bool(callback.histogram_freq and callback.write_images), False, weights),
        "update_freq": (callback.update_freq, "epoch", batches),
        "profile_batch": (callback._should_trace, False, batches),
    }
    for argument, (value, possible, reason) in refused.items():
        if value != possible:
            default = "0" if possible == 0 and possible is not False else repr(possible)
            raise UserError(
                f"{path}: TensorBoard can't work with this {argument}, because {reason}",
                hint=f"Remove {argument}, or give {argument}={default}.",
            )


def log_dir_of(callbacks: Sequence[Any], path: Path) -> str:
    """URI of the ``TensorBoard`` callback's folder; empty if absent. Several with different folders: ``UserError``."""
    folders = sorted({callback.log_dir for callback in callbacks if is_tensorboard(callback)})
    if len(folders) > 1:
        raise UserError(
            f"{path}: several TensorBoard callbacks have different folders: {', '.join(folders)}",
            hint="Keep one of them.",
        )
    return to_uri(folders[0]) if folders else ""
