"""Generated purchases as Parquet: ``user`` and ``item`` (int32), from tastes of users for items that are known.

A user buys an item with the probability softmax(strength * <taste of the user, nature of the item>). The best ranking
of the items for a user is that of these products, so the best possible ``recall_at_10`` is known: how often the item of
a test record is among the ten with the largest ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticdl.zoo.writing import DataRequest, Written, write_table

RECORDS = 80_000
TEST_SHARE = 0.1
USERS, ITEMS = 1000, 500
RECORDS_PER_FILE = 50_000
TOP = 10

_DIMENSIONS = 6
_STRENGTH = 1.5
_CHUNK = 10_000

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]


def make(request: DataRequest) -> Written:
    """Write both folders."""
    counts = request.counts("two_tower", RECORDS, TEST_SHARE)
    scores = true_scores(request.seed)
    best = 0.0
    for number, (part, count) in enumerate(counts.items(), start=1):
        users, items = _drawn(scores, count, np.random.default_rng((request.seed, number)))
        write_table(request.folder / part, {"user": users, "item": items}, RECORDS_PER_FILE)
        best = recall(scores, users, items)  # The last is the test's.
    return counts, {f"recall_at_{TOP}": best}


def true_scores(seed: int) -> Floats:
    """How much each user likes each item, (users, items)."""
    random = np.random.default_rng((seed, 0))
    tastes, natures = (random.normal(size=(size, _DIMENSIONS)) for size in (USERS, ITEMS))
    return _STRENGTH * tastes @ natures.T


def recall(scores: NDArray[np.floating], users: Ids, items: Ids) -> float:
    """How often an item is among the ten with the largest scores of its user; ``scores``: (users, items)."""
    own = scores[users, items]
    return float(np.mean((scores[users] > own[:, None]).sum(axis=1) < TOP))


def _drawn(scores: Floats, count: int, random: np.random.Generator) -> tuple[Ids, Ids]:
    users = random.integers(USERS, size=count, dtype=np.int32)
    chosen = [
        np.argmax(scores[part] + random.gumbel(size=(len(part), ITEMS)), axis=1)  # Draws from the softmax.
        for part in np.split(users, range(_CHUNK, count, _CHUNK))
    ]
    return users, np.concatenate(chosen).astype(np.int32)
