"""What an optimizer makes of dense weights, one update after another in float64: the reference for rows that catch up.

Every update touches every row, with a zero gradient where a row had none. Nothing here is shared with the product, but
the choice of optimizers: their formulas are written again, in the order of Keras' operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.signature import Optimizer, RowTable

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SGD = "sgd"
_SCHEDULE = {"initial_learning_rate": 1.0, "decay_steps": 6, "decay_rate": 0.5, "staircase": True}
OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        SGD: Optimizer(name="sgd", learning_rate=1.0),
        "decay": Optimizer(name="sgd", learning_rate=1.0, hyperparameters={"weight_decay": 0.05}),
        "momentum": Optimizer(name="sgd", learning_rate=1.0, hyperparameters={"momentum": 0.8}),
        "adam": Optimizer(
            name="adam",
            learning_rate=1.0,
            hyperparameters={"beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-3},
            schedule="InverseTimeDecay",
            schedule_config=_SCHEDULE,
        ),
    }
)
"""Of simulated jobs. With all but plain SGD a row changes in updates in which it has no gradient."""


class DenseUpdates:
    """Weights and slots of one variable.

    Args:
        optimizer: one of ``OPTIMIZERS``.
        initial: float64, the weights before the first update.
    """

    def __init__(self, optimizer: Optimizer, initial: Doubles) -> None:
        self.weights = initial.astype(np.float64)
        self.first = np.zeros_like(self.weights)
        """Velocity of SGD, first moment of Adam."""
        self.second = np.zeros_like(self.weights)
        self.updates = 0
        self._name = optimizer.name
        self._values = optimizer.hyperparameters
        self._has_schedule = bool(optimizer.schedule)

    def update(self, gradients: Doubles, squares: Doubles | None = None) -> None:
        """Make an update of every weight; ``gradients`` are float64, one per weight.

        ``squares``: the sums of the squares that the gradients consist of; None: each gradient is one.
        """
        rate = 1.0 / (1.0 + 0.5 * (self.updates // 6)) if self._has_schedule else 1.0
        self.updates += 1
        if self._name == "adam":
            beta_1, beta_2 = self._values["beta_1"], self._values["beta_2"]
            self.first += (gradients - self.first) * (1 - beta_1)
            self.second += ((gradients**2 if squares is None else squares) - self.second) * (1 - beta_2)
            rate *= (1 - beta_2**self.updates) ** 0.5 / (1 - beta_1**self.updates)
            self.weights -= rate * self.first / (np.sqrt(self.second) + self._values["epsilon"])
            return
        self.weights -= rate * self._values.get("weight_decay", 0.0) * self.weights
        self.first = self._values.get("momentum", 0.0) * self.first - rate * gradients
        self.weights += self.first

    def take(self, other: DenseUpdates, rows: Mask) -> None:
        """Have the state of another variable in some rows, bool[rows]."""
        for own, theirs in ((self.weights, other.weights), (self.first, other.first), (self.second, other.second)):
            own[rows] = theirs[rows]


class TableUpdates:
    """All rows of a table, with the rules of admission by count and of expiry (ADR 13).

    Args:
        optimizer: one of ``OPTIMIZERS``.
        table: its initial values are constant.
        rows: ids of the table, from 0.
    """

    def __init__(self, optimizer: Optimizer, table: RowTable, rows: int) -> None:
        initial = np.full((rows, table.width), table.initializer.low, np.float64)
        self.table = table
        self._rows = DenseUpdates(optimizer, initial)
        self._untouched = DenseUpdates(optimizer, initial)
        self.largest = np.abs(initial).max(axis=1)
        """float64[rows]: of all weights that a row has had."""
        self.is_stored = np.zeros(rows, np.bool_)
        self.seen = np.zeros(rows, np.int64)
        """Updates with a gradient for an id that has no row."""
        self.admitted = np.zeros(rows, np.int64)
        self.dropped = np.zeros(rows, np.int64)
        self._touched_at = np.zeros(rows, np.int64)
        self._seen_at = np.zeros(rows, np.int64)

    @property
    def weights(self) -> Doubles:
        """float64[rows, width]: what a pull answers."""
        return self._rows.weights

    @property
    def is_candidate(self) -> Mask:
        """bool[rows]: whether an id was seen, and not often enough yet."""
        return self.seen > 0

    def update(self, gradients: Doubles, squares: Doubles, touched: Mask) -> None:
        """Make an update: ``gradients`` float64[rows, width], and for which rows, bool[rows], there are any.

        ``squares``: float64[rows, width], the sums of the squares that the gradients consist of.
        """
        new = touched & ~self.is_stored
        self.seen[new] += 1
        admitted = new & (self.seen >= self.table.min_count)
        self.seen[admitted] = 0
        self.is_stored |= admitted
        self.admitted += admitted
        self.dropped += new & ~admitted
        learning = touched & self.is_stored
        self._rows.update(*(np.where(learning[:, np.newaxis], one, 0.0) for one in (gradients, squares)))
        self._untouched.update(np.zeros_like(gradients))
        self._touched_at[learning] = self._rows.updates
        self._seen_at[new] = self._rows.updates
        self.largest = np.maximum(self.largest, np.abs(self.weights).max(axis=1))
        self._expire()

    def _expire(self) -> None:
        if not self.table.expire_after:
            return
        expired = self.is_stored & (self._rows.updates - self._touched_at >= self.table.expire_after)
        self._rows.take(self._untouched, expired)
        self.is_stored[expired] = False
        self.seen[self._rows.updates - self._seen_at >= self.table.expire_after] = 0


@lru_cache(maxsize=4096)
def traces(optimizer: str, updates: int) -> Doubles:
    """What shows in which update a weight had its only gradient, -1, by the number of that update.

    Args:
        optimizer: a key of ``OPTIMIZERS``.
        updates: made altogether.

    Returns:
        float64[updates]: the first slot after all updates; the weight where the optimizer has no slots.
    """
    weights = DenseUpdates(OPTIMIZERS[optimizer], np.zeros(updates))
    for gradients in -np.eye(updates):
        weights.update(gradients)
    return weights.weights if optimizer == "decay" else weights.first
