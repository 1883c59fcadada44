"""The initializer of one table, ready for the kernels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shared.model.kernels import initial
from elasticdl.shared.model.signature import RowTable

_DISTRIBUTIONS = {
    "zeros": initial.CONSTANT,
    "constant": initial.CONSTANT,
    "uniform": initial.UNIFORM,
    "normal": initial.NORMAL,
    "truncated_normal": initial.TRUNCATED_NORMAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Initializer:
    """A function of (seed, table name, id, column), so that no missing row has to be stored.

    Attributes:
        key: 64-bit key of (seed, table name).
        distribution: number of the distribution in ``kernels.initial``.
        width: floats per row.
    """

    key: int
    distribution: int
    low: float
    high: float
    width: int

    @classmethod
    def of(cls, table: RowTable, seed: int) -> Initializer:
        """The initializer of ``table``."""
        rule = table.initializer
        if rule.distribution not in _DISTRIBUTIONS:
            raise UserError(
                f"table {table.name!r}: initializer distribution {rule.distribution!r} is not supported",
                hint=f"Use one of {', '.join(_DISTRIBUTIONS)}.",
            )
        name_hash = int.from_bytes(hashlib.blake2b(table.name.encode(), digest_size=8).digest(), "little")
        return cls(
            key=derive_key(seed, name_hash),
            distribution=_DISTRIBUTIONS[rule.distribution],
            low=0.0 if rule.distribution == "zeros" else rule.low,
            high=rule.high,
            width=table.width,
        )

    def fill(self, ids: NDArray[np.int64], out: NDArray[np.float32], stride: int) -> None:
        """Write the row of ``ids[i]`` at ``out[i * stride :]`` of the flat ``out``."""
        key = np.uint64(self.key)
        initial.fill(key, self.distribution, self.low, self.high, ids, self.width, stride, out)

    def fill_missing(
        self, ids: NDArray[np.int64], row_indices: NDArray[np.int64], limit: int, out: NDArray[np.float32]
    ) -> None:
        """Write the row of ``ids[i]`` at ``out[i * width :]`` where ``row_indices[i]`` is not in ``[0, limit)``."""
        key = np.uint64(self.key)
        initial.fill_missing(key, self.distribution, self.low, self.high, ids, self.width, row_indices, limit, out)
