"""Loss and metrics of a job over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.shared.errors import UserError


@dataclass(frozen=True, slots=True)
class History:
    """What ``fit()`` returns as its history, and all evaluations.

    Attributes:
        epochs: for each epoch, from 1: epoch, loss, metrics, validation, validation_step, batches, records, seconds.
        evaluations: for each evaluation: evaluation, epoch, step, reason, metrics, seconds and more, as in the report.
    """

    epochs: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]

    @property
    def history(self) -> dict[str, list[float | None]]:
        """Metric -> one value per epoch, with Keras' names: ``loss``, ``auc``, ``val_loss``, ``val_auc``."""
        rows = [_flat(epoch) for epoch in self.epochs]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with one row per epoch: ``history``, and ``records``, ``batches`` and ``seconds``.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UserError("to_pandas() needs pandas", hint="Install it: pip install 'elasticdl[notebook]'") from error
        numbers = [epoch["epoch"] for epoch in self.epochs]
        frame = pd.DataFrame(self.history, index=pd.Index(numbers, name="epoch"))
        for name in ("records", "batches", "seconds"):
            frame[name] = [epoch[name] for epoch in self.epochs]
        return frame


def _flat(epoch: Mapping[str, Any]) -> dict[str, float | None]:
    validation = {f"val_{name}": value for name, value in epoch["validation"].items()}
    return {"loss": epoch["loss"], **epoch["metrics"], **validation}
