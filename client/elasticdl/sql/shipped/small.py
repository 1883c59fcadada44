"""Iris, as it was published, and generated houses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_SEED = 1978


def iris() -> pa.Table:
    """150 flowers: four lengths in cm, and ``class``: 0 setosa, 1 versicolor, 2 virginica. R. A. Fisher (1936)."""
    import pyarrow.csv

    return pyarrow.csv.read_csv(Path(__file__).with_name("iris.csv"))


def housing(rows: int) -> pa.Table:
    """Districts with 13 numbers, ``f1`` to ``f13``, and a price, ``target``, that follows a known rule."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(_SEED)
    crime = random.lognormal(0, 1.5, rows)
    rooms = random.normal(6.3, 0.7, rows)
    tax = random.integers(187, 712, rows)
    poor = random.gamma(3, 4, rows)
    river = (random.random(rows) < 0.07).astype(np.int64)
    others = random.normal(0, 1, (7, rows))
    target = 22 + 5.5 * (rooms - 6.3) - 0.5 * (poor - 12) - 0.25 * crime - 0.006 * (tax - 400) + 4 * river
    target += 1.5 * np.maximum(rooms - 7, 0) * (poor < 10) - 1.2 * others[0] + random.normal(0, 1.5, rows)
    columns = [crime, others[1], others[2], river, others[0], rooms, *others[3:6], tax, others[6], poor]
    columns.append(random.normal(350, 40, rows))
    named = {f"f{number}": np.round(values, 4) for number, values in enumerate(columns, start=1)}
    return pa.table({**named, "target": np.round(target, 2)})
