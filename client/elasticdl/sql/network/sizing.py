"""Sizes of a network and of its training, by the number of rows, where the statement does not give them."""

from __future__ import annotations

from dataclasses import dataclass

_STEPS_WANTED = 600
"""Updates after which networks of these sizes have learned small tables."""
_EPOCHS_MAX = 40
_HIDDEN = ((1_000, (32, 16)), (50_000, (64, 32)), (1_000_000, (128, 64)))
_HIDDEN_LARGE = (256, 128, 64)
_BATCHES = ((500, 16), (2_000, 32), (20_000, 64), (200_000, 256))
_BATCH_LARGE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What follows from the number of training rows."""

    hidden_units: tuple[int, ...]
    batch: int
    epochs: int
    learning_rate: float


def size_for(rows: int, *, batch: int = 0, epochs: int = 0) -> Size:
    """Sizes for a number of rows.

    Args:
        batch, epochs: what the statement gives; 0: nothing.
    """
    batch = batch or next((size for most, size in _BATCHES if rows < most), _BATCH_LARGE)
    steps_per_epoch = max(1, -(-rows // batch))
    return Size(
        hidden_units=next((units for most, units in _HIDDEN if rows < most), _HIDDEN_LARGE),
        batch=batch,
        epochs=epochs or max(1, min(_EPOCHS_MAX, round(_STEPS_WANTED / steps_per_epoch))),
        learning_rate=0.005,
    )
