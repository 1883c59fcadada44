"""Rows that catch up on updates: what cuts, copies and histories of learning rates have to keep."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.ps_engine.chunks import chunks

from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.model.manifests import GroupState, RateRun
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.model.rows.timeline import RateHistory, Timeline
from elasticdl.shared.model.signature import Optimizer, RowInitializer, RowTable

WIDTH = 3
IDS = np.arange(8)
NORMAL = RowInitializer(distribution="normal", low=0.0, high=1.0)
optimizers = pytest.mark.parametrize("optimizer", ["adam", "adamw", "ftrl", "lion", "rmsprop"])


def store_of(optimizer: str, *, expire_after: int = 0) -> RowStore:
    table = RowTable(name="t", width=WIDTH, initializer=NORMAL, expire_after=expire_after)
    return RowStore(table, Optimizer(name=optimizer, learning_rate=0.1), 3, Timeline())


def update(store: RowStore, ids: list[int]) -> None:
    made = int(store.timeline.updates[0])
    gradients = np.random.default_rng(made).normal(size=(len(ids), WIDTH)).astype(np.float32)
    store.timeline.rates.record(made, 0.1)
    store.push(RowGradients(np.array(ids, np.int64), gradients), Update(0.1, made))
    store.timeline.updates[:] = made + 1


def pulled(source: RowStore | RowCut) -> NDArray[np.float32]:
    out = np.empty((IDS.size, WIDTH), np.float32)
    source.pull(IDS, out)
    return out


def trained(optimizer: str) -> RowStore:
    store = store_of(optimizer)
    for made in range(40):
        update(store, [made % 5, 5 if made == 3 else 6])
    return store


@optimizers
def test_a_cut_answers_as_the_store_did_at_that_moment(optimizer: str) -> None:
    store = trained(optimizer)
    expected = pulled(store)
    with store.cut() as cut:
        for _ in range(30):
            update(store, [0, 1])
        np.testing.assert_array_equal(pulled(cut), expected)
        assert not np.array_equal(pulled(store), expected)


@optimizers
def test_pulls_change_nothing(optimizer: str) -> None:
    watched, other = trained(optimizer), trained(optimizer)
    for _ in range(5):
        update(watched, [0])
        update(other, [0])
        pulled(watched)
    for store in (watched, other):
        update(store, IDS.tolist())
    np.testing.assert_array_equal(pulled(watched), pulled(other))


@optimizers
def test_a_restored_store_goes_on_as_the_one_that_was_saved(optimizer: str) -> None:
    store, restored = trained(optimizer), store_of(optimizer)
    with store.cut() as cut:
        for ids, slabs in chunks(cut, 4):
            restored.load(ids, slabs)
    restored.timeline.rates.load(store.timeline.rates.runs, 40)
    restored.timeline.updates[:] = 40
    for _ in range(3):
        np.testing.assert_array_equal(pulled(restored), pulled(store))
        for one in (store, restored):
            update(one, [5, 7])


@optimizers
def test_stored_weights_are_those_that_a_pull_gives(optimizer: str) -> None:
    store = trained(optimizer)
    ids, weights = store.stored_weights(0, store.rows)
    assert ids.size == 7
    np.testing.assert_array_equal(weights, pulled(store)[ids])


def test_rows_of_a_partition_that_is_not_served_do_not_change() -> None:
    store = trained("adam")
    expected = pulled(store)
    weights = np.empty((7, WIDTH), np.float32)
    store.timeline.updates[:] = 0  # In a recipient, until its group is served.
    ids, weights = store.stored_weights(0, 7)
    store.timeline.updates[:] = 40
    saved = {row: tuple(values) for row, values in zip(ids.tolist(), weights.tolist(), strict=True)}
    assert saved[4] == tuple(expected[4].tolist())  # It was in the last update.
    assert saved[5] != tuple(expected[5].tolist())


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_optimizers_that_leave_rows_alone_need_no_number_per_row(optimizer: str) -> None:
    store = store_of(optimizer)
    assert store.missed is None
    assert store.slab_width == WIDTH * (1 if optimizer == "sgd" else 2)


def test_a_history_joins_rates_that_are_nearly_equal() -> None:
    history = RateHistory()
    for made, rate in enumerate([0.1, 0.1, 0.1001, 0.05, 0.05, 0.0]):
        history.record(made, rate)
        history.record(made, 7.0)  # A batch that is trained again.
    assert history.runs == (RateRun(0, 0.1), RateRun(3, 0.05), RateRun(5, 0.0))
    assert history.arrays.sum_until(np.array([0, 2, 4, 9], np.int32)) == pytest.approx([0.0, 0.2, 0.35, 0.4])


def test_a_history_stays_short() -> None:
    history = RateHistory()
    rates = 0.1 + 0.09 * np.sin(np.arange(20_000))
    for made, rate in enumerate(rates.tolist()):
        history.record(made, rate)
    assert len(history.runs) <= 8192
    last = history.runs[-1].start
    assert history.arrays.sum_until(np.array([last], np.int32)) == pytest.approx([rates[:last].sum()], rel=0.1)


def test_a_restored_history_joins_and_thins_as_the_one_that_was_saved() -> None:
    history, restored = RateHistory(), RateHistory()
    rates = (0.1 + 0.09 * np.sin(np.arange(20_100))).tolist()
    for made, rate in enumerate(rates[:20_000]):
        history.record(made, rate)
    group = GroupState(
        partitions=ALL,
        ledger=LedgerRecord(),
        iteration=20_000,
        rate=0.0,
        accumulated=0,
        rates=history.runs,
        rate_tolerance=history.tolerance,
    )
    restored.load(group.rates, group.iteration, group.rate_tolerance)
    for made in range(20_000, len(rates)):
        for one in (history, restored):
            one.record(made, rates[made])
    assert restored.runs == history.runs
    assert restored.tolerance == history.tolerance


def test_the_longer_history_is_kept() -> None:
    history = RateHistory()
    history.load([RateRun(0, 0.1), RateRun(5, 0.2)], 10)
    history.load([RateRun(0, 0.3)], 7)
    history.load([], 20)
    assert [*history.runs] == [RateRun(0, 0.1), RateRun(5, 0.2)]
    history.record(9, 0.5)
    history.record(10, 0.5)
    assert history.runs[-1] == RateRun(10, 0.5)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "ftrl"])
def test_rows_that_training_starts_from_change_as_those_without_a_gradient(optimizer: str) -> None:
    warm, cold = store_of(optimizer), store_of(optimizer)
    start = pulled(cold)
    warm.load_weights(IDS, start)
    for made in range(20):
        for store in (warm, cold):
            update(store, [made % 2])
        np.testing.assert_allclose(pulled(warm), pulled(cold), rtol=1e-5, atol=1e-6)
    assert np.array_equal(pulled(warm)[5], start[5]) == (optimizer == "adam")
    for store in (warm, cold):
        update(store, IDS.tolist())
    np.testing.assert_allclose(pulled(warm), pulled(cold), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "ftrl"])
def test_missing_rows_of_an_evaluation_are_those_of_the_trained_model(optimizer: str) -> None:
    trained_store, evaluated = trained(optimizer), store_of("sgd")
    weights_only = store_of("sgd")
    missed = trained_store.missed
    assert missed is not None
    weights_only.load_weights(*trained_store.stored_weights(0, trained_store.rows))
    weights_only.initial_factors = missed.untouched(trained_store.timeline.updates)
    evaluated.take_initial_rows(weights_only, 3)
    evaluated.load_weights(*weights_only.stored_weights(0, weights_only.rows))
    np.testing.assert_allclose(pulled(evaluated), pulled(trained_store), rtol=1e-5, atol=1e-7)
