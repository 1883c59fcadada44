"""The rows of a job's history file, which the log of a resumed job repeats where it has lost records."""

from __future__ import annotations

import json
from typing import TypedDict


class EpochRow(TypedDict):
    """Training during one epoch; epochs count from 1.

    ``batches`` and ``records`` are those whose loss and metrics are known, each counted once, so at most the plan's.
    ``loss`` is the mean over these records; ``metrics`` are the other metrics on the training data. ``validation``
    holds the metrics of the model at the end of this epoch, which is step ``validation_step``. Without an evaluation of
    exactly this state they are empty and None.
    """

    epoch: int
    loss: float | None
    metrics: dict[str, float | None]
    validation: dict[str, float | None]
    validation_step: int | None
    batches: int
    records: int
    seconds: float


def read_history(text: str) -> list[EpochRow]:
    """The rows of a history file; none if it is damaged."""
    try:
        rows: list[EpochRow] = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return []
    return rows
