"""A store with some of the rows of another one: whole slabs, in their order, with what is known of their changes."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.model import Optimizer, RowInitializer, RowTable

TABLE = RowTable(name="t", width=3, initializer=RowInitializer(distribution="zeros"))


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("chosen", [[], [0, 1, 7], list(range(10)), [9]])
def test_the_chosen_rows_are_kept_and_open_cuts_see_what_they_saw(chosen: list[int], pinned: bool) -> None:
    store = RowStore(TABLE, Optimizer(name="adam", learning_rate=0.1), 1)
    ids = np.arange(100, 110, dtype=np.int64)
    slabs = np.arange(10 * store.slab_width, dtype=np.float32).reshape(10, -1)
    store.load(ids, slabs)
    cut = store.cut() if pinned else None
    slots = np.array(chosen, np.int64)
    kept = store.kept(slots)
    assert kept.index.ids.tolist() == ids[slots].tolist()
    found = [(own, rows) for own, rows in kept.cut().chunks(100)]
    assert np.array_equal(np.concatenate([rows for _, rows in found]) if found else slabs[:0], slabs[slots])
    kept.load(ids[:2], slabs[:2] + 1)
    out = np.empty((2, 3), np.float32)
    kept.pull(ids[:2], out)
    assert np.array_equal(out, slabs[:2, :3] + 1)
    if cut is not None:
        ((_, before),) = cut.chunks(100)
        assert np.array_equal(before, slabs)
        cut.close()
