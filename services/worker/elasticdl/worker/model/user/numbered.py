"""Data that a shipped model file makes from the numbers of records, see ``elasticdl.shipping.numbered``."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.ragged import Columns
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shipping.numbered import NUMBER
from elasticdl.shipping.shipped import Shipped
from elasticdl.worker.input.records import Expand
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.model.user.randomness import BatchRandomness

_EPOCH_SEED = 7
"""Distinguishes the seeds of epochs from those of feeds and steps."""


def numbers_of(module: UserModule, mode: str, seed: int) -> Expand | None:
    """What makes the columns of a batch from the numbers of its records; None: the data has them.

    Args:
        seed: of the plan.
    """
    shipped = getattr(module.module, "_SHIPPED", None)
    data = shipped.numbered(mode) if isinstance(shipped, Shipped) else None
    if data is None:
        return None
    code = user_code(module.path, "the dataset of fit()")
    randomness = BatchRandomness(eager=True)

    def columns(numbers: ColumnBatch, epoch: int, batch_seed: int) -> Columns:
        with code:
            data.reach(epoch, lambda number: randomness.batch(derive_key(seed, _EPOCH_SEED, number)))
            with randomness.batch(batch_seed):
                found: dict[str, Any] = data.read(np.asarray(numbers[NUMBER], np.int64))
                return found

    return columns
