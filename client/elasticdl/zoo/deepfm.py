"""Generated click logs in the format of Criteo's, from a known factorisation machine, as Parquet.

Columns: ``label`` (int8), ``i1`` to ``i13`` (float32, standard normal), ``c1`` to ``c26`` (int32, popular ids first).
A record's click is drawn with probability

    sigmoid(bias + sum_j a_j i_j + sum_f w_f[c_f] + sum_{f<g} <v_f[c_f], v_g[c_g]>),

Rendle's factorisation machine of degree 2, so the AUC of the true probabilities is the best possible one.
Ids are drawn from bounded Zipf distributions, and the effect of an id shrinks with its rank, so ids that are too rare
to be learned matter little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from elasticdl.shared.storage.atomic import replacing
from elasticdl.zoo.writing import TEST, TRAIN, DataRequest, Written, auc, log_loss, part_paths

RECORDS = 500_000
TEST_SHARE = 0.1
NUMBERS = 13
VOCABULARIES = (
    10_000, 500, 10_000, 10_000, 300, 20, 5_000, 600, 3, 10_000, 5_000, 10_000, 3_000,
    26, 5_000, 10_000, 10, 4_000, 2_000, 4, 10_000, 18, 15, 10_000, 100, 5_000,
)  # fmt: skip
"""Number of ids of each categorical column; they differ as much as in Criteo's data."""
RECORDS_PER_FILE = 100_000
ROWS_PER_GROUP = 20_000

_ZIPF_EXPONENT = 1.4
_FACTORS = 4
_BIAS = -1.8
_NUMBER_STRENGTH = 0.35
_ID_STRENGTH = 0.4
_FACTOR_STRENGTH = 0.16
_RANK_DECAY = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickModel:
    """The factorisation machine that generates the labels.

    Attributes:
        numbers: (13,), the weight of each number.
        weights: per categorical column (ids,).
        factors: per categorical column (ids, factors).
        shares: per categorical column (ids,): cumulative probability of each id.
    """

    numbers: NDArray[np.float32]
    weights: tuple[NDArray[np.float32], ...]
    factors: tuple[NDArray[np.float32], ...]
    shares: tuple[NDArray[np.float64], ...]

    @classmethod
    def random(cls, seed: int) -> ClickModel:
        """Draw random parameters."""
        random = np.random.default_rng((seed, 0))
        weights, factors, shares = [], [], []
        for size in VOCABULARIES:
            rank = np.arange(1, size + 1, dtype=np.float64)
            decay = rank[:, None] ** -_RANK_DECAY
            weights.append((_ID_STRENGTH * decay[:, 0] * random.normal(size=size)).astype(np.float32))
            factors.append((_FACTOR_STRENGTH * decay * random.normal(size=(size, _FACTORS))).astype(np.float32))
            popularity = np.cumsum(rank**-_ZIPF_EXPONENT)
            shares.append(popularity / popularity[-1])
        numbers = (_NUMBER_STRENGTH * random.normal(size=NUMBERS)).astype(np.float32)
        return cls(numbers=numbers, weights=tuple(weights), factors=tuple(factors), shares=tuple(shares))

    def draw_ids(self, count: int, random: np.random.Generator) -> list[NDArray[np.int32]]:
        """Ids per categorical column, each (count,)."""
        return [
            np.searchsorted(shares, random.random(count), side="right").clip(0, shares.size - 1).astype(np.int32)
            for shares in self.shares
        ]

    def probabilities(self, numbers: list[NDArray[np.float32]], ids: list[NDArray[np.int32]]) -> NDArray[np.float64]:
        """The true probability of a click, (count,).

        The sum over pairs is computed as half of (square of the sum - sum of the squares).
        """
        score = np.full(ids[0].shape, _BIAS)
        for weight, column in zip(self.numbers, numbers, strict=True):
            score += weight * column
        total = np.zeros((ids[0].size, _FACTORS), np.float32)
        squares = np.zeros(ids[0].shape, np.float32)
        for weights, factors, chosen in zip(self.weights, self.factors, ids, strict=True):
            score += weights[chosen]
            rows = factors[chosen]
            total += rows
            squares += np.einsum("nk,nk->n", rows, rows)
        score += (np.einsum("nk,nk->n", total, total) - squares) / 2
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-score))
        return probabilities


def make(request: DataRequest) -> Written:
    """Write both folders."""
    counts = request.counts("deepfm", RECORDS, TEST_SHARE)
    model = ClickModel.random(request.seed)
    for _ in _write(model, request.folder / TRAIN, counts[TRAIN], (request.seed, 1)):
        pass
    chunks = list(_write(model, request.folder / TEST, counts[TEST], (request.seed, 2)))
    labels, probabilities = (np.concatenate(column) for column in zip(*chunks, strict=True))
    return counts, {"auc": auc(labels, probabilities), "log_loss": log_loss(labels, probabilities)}


def _write(
    model: ClickModel, folder: Path, records: int, seed: tuple[int, int]
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """Write a folder file by file; yields each file's labels and true probabilities.

    Each file has its own random generator, so that more records give more files and leave the first ones unchanged.
    """
    paths = part_paths(folder, ".parquet")
    for number, start in enumerate(range(0, records, RECORDS_PER_FILE)):
        count = min(RECORDS_PER_FILE, records - start)
        random = np.random.default_rng((*seed, number))
        numbers = [random.standard_normal(count, np.float32) for _ in range(NUMBERS)]
        ids = model.draw_ids(count, random)
        probabilities = model.probabilities(numbers, ids)
        labels = random.random(count) < probabilities
        columns: dict[str, NDArray[np.generic]] = {"label": labels.astype(np.int8)}
        columns |= {f"i{place}": column for place, column in enumerate(numbers, start=1)}
        columns |= {f"c{place}": column for place, column in enumerate(ids, start=1)}
        with replacing(next(paths)) as file:
            pq.write_table(pa.table(columns), file, row_group_size=ROWS_PER_GROUP)
        yield labels, probabilities
