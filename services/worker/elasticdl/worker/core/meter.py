"""What the heartbeat tells people about the training; the core writes it, another thread reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meter:
    """Sums since the start of the process.

    Attributes:
        records: records of batches that were pushed.
        batches: batches computed.
        loss: loss of the last batch.
        step: step of the model after the last push.
    """

    records: int = 0
    batches: int = 0
    loss: float = 0.0
    step: int = 0
