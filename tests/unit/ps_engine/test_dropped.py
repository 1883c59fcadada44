"""Rows whose partition went to another ps are dropped little by little; the others stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ps_engine.chunks import chunks

from elasticdl.ps.engine import rows as engine
from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.model.partitioning import partitions_of
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import Optimizer, RowInitializer, RowTable

TABLE = RowTable(name="t", width=3, initializer=RowInitializer(distribution="zeros"))
ROWS = 1000


def filled() -> tuple[RowStore, dict[int, list[float]]]:
    store = RowStore(TABLE, Optimizer(name="adam", learning_rate=0.1), 1, Timeline())
    ids = np.random.default_rng(1).permutation(4 * ROWS)[:ROWS].astype(np.int64)
    slabs = np.arange(ROWS * store.slab_width, dtype=np.float32).reshape(ROWS, -1)
    store.load(ids, slabs)
    return store, dict(zip(ids.tolist(), slabs.tolist(), strict=True))


def rows_of(store: RowStore) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    with store.cut() as cut:
        for ids, slabs in chunks(cut, 64):
            found.update(zip(ids.tolist(), slabs.tolist(), strict=True))
    return found


@pytest.mark.parametrize("kept", [0, 1, 100, 255, 256])
def test_only_rows_of_wanted_partitions_are_left(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_DROPPED_ROWS", 64)
    store, rows = filled()
    wanted = np.arange(PARTITIONS) < kept
    expected = {one: slab for one, slab in rows.items() if wanted[partitions_of(np.array([one]))[0]]}
    new = next(
        one for one in range(4 * ROWS, 5 * ROWS) if (kept and wanted[partitions_of(np.array([one]))[0]]) or not kept
    )
    stop = store.rows
    while stop:
        stop = store.drop(stop, wanted)
        if kept and new not in store.index.ids:
            store.push(RowGradients(np.array([new]), np.zeros((1, 3), np.float32)), Update(0.1, 0))
            up_to = np.array([1], np.int32).view(np.float32).tolist()
            expected[new] = [0.0] * 9 + up_to
    assert rows_of(store) == expected
    assert store.rows == len(expected)
    ids = np.array(list(rows), np.int64)
    assert {one for one, slot in zip(rows, store.index.find(ids), strict=True) if slot >= 0} == set(expected) & set(
        rows
    )


def test_rows_wait_for_an_open_cut() -> None:
    store, rows = filled()
    nothing = np.zeros(PARTITIONS, np.bool_)
    with store.cut() as cut:
        assert store.drop(store.rows, nothing) == ROWS
        assert sum(ids.size for ids, _ in chunks(cut, 100)) == ROWS
    assert rows_of(store) == rows
    assert store.drop(store.rows, nothing) == 0
    assert store.rows == 0


@given(st.lists(st.integers(-50, 50), unique=True, min_size=1), st.data())
def test_an_index_without_some_ids_finds_the_others(ids: list[int], data: st.DataObject) -> None:
    index = IdIndex()
    index.insert(np.array(ids, np.int64))
    gone = data.draw(st.lists(st.sampled_from(range(len(ids))), unique=True))
    sources = index.remove(np.array(sorted(gone, reverse=True), np.int64))
    state = list(ids)
    for slot, source in zip(sorted(gone, reverse=True), sources.tolist(), strict=True):
        state[slot] = state[source]
    left = [one for number, one in enumerate(ids) if number not in gone]
    assert sorted(index.ids.tolist()) == sorted(left) == sorted(state[: len(left)])
    assert index.ids.tolist() == state[: len(left)]
    slots = index.find(np.array(ids, np.int64)).tolist()
    assert [slot >= 0 for slot in slots] == [number not in gone for number in range(len(ids))]
    assert all(index.ids[slot] == one for one, slot in zip(ids, slots, strict=True) if slot >= 0)
    assert sorted(index.insert(np.array(ids, np.int64)).tolist()) == list(range(len(ids)))
