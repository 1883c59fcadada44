"""Rows that are admitted by count and expire, against a model in NumPy that keeps nothing that is over."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray
from tests.unit.ps_engine.chunks import chunks

from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.tracked_rows import Candidates, TrackedRowStore, row_store
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import Optimizer, RowInitializer, RowTable

WIDTH = 3
RATE = np.float32(0.1)
POOL = list(range(-8, 9))
EVERYWHERE = np.ones(PARTITIONS, np.bool_)
Floats = NDArray[np.float32]
Saved = list[tuple[NDArray[np.int64], Floats]]


def store_of(min_count: int, expire_after: int, optimizer: str = "sgd") -> TrackedRowStore:
    uniform = RowInitializer(distribution="uniform", low=-1.0, high=1.0)
    table = RowTable(name="clicks", width=WIDTH, initializer=uniform, min_count=min_count, expire_after=expire_after)
    store = row_store(table, Optimizer(name=optimizer, learning_rate=0.1), 9, Timeline())
    assert isinstance(store, TrackedRowStore)
    return store


def array(ids: list[int]) -> NDArray[np.int64]:
    return np.array(ids, np.int64)


def gradients_of(ids: list[int], update: int) -> Floats:
    return np.random.default_rng(update).normal(size=(len(ids), WIDTH)).astype(np.float32)


def pulled(source: RowStore | RowCut, ids: list[int] = POOL) -> Floats:
    out = np.full((len(ids), WIDTH), np.nan, np.float32)
    source.pull(array(ids), out)
    return out


@dataclass
class Reference:
    """The rules, one id at a time, with Adagrad's or SGD's formula; what is over is removed at once."""

    min_count: int
    expire_after: int
    optimizer: str
    initial: dict[int, Floats]
    updates: int = 0
    rows: dict[int, Floats] = field(default_factory=dict)
    squares: dict[int, Floats] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    touched: dict[int, int] = field(default_factory=dict)
    admitted: int = 0
    dropped: int = 0

    def update(self, ids: list[int], gradients: Floats) -> None:
        self.updates += 1
        for one, gradient in zip(ids, gradients, strict=True):
            self.touched[one] = self.updates
            if one not in self.rows:
                self.counts[one] = self.counts.get(one, 0) + 1
                if self.counts[one] < self.min_count:
                    self.dropped += 1
                    continue
                del self.counts[one]
                self.admitted += 1
                self.rows[one] = self.initial[one].copy()
                self.squares[one] = np.full(WIDTH, 0.1, np.float32)
            if self.optimizer == "adagrad":
                self.squares[one] += gradient * gradient
                gradient = gradient / np.sqrt(self.squares[one] + np.float32(1e-7))
            self.rows[one] = self.rows[one] - RATE * gradient
        for one, touched in list(self.touched.items()):
            if self.expire_after and self.updates - touched >= self.expire_after:
                for facts in (self.rows, self.squares, self.counts, self.touched):
                    facts.pop(one, None)

    def pull(self) -> Floats:
        return np.stack([self.rows.get(one, self.initial[one]) for one in POOL])


def update(store: TrackedRowStore, ids: list[int], updates: int) -> None:
    """Make the update after so many others."""
    gradients = gradients_of(ids, updates)
    store.check(array(ids), gradients)
    store.reserve(len(ids))
    store.push(RowGradients(array(ids), gradients), Update(float(RATE), updates))
    store.timeline.updates[:] = updates + 1


@dataclass
class Snapshot:
    """What a ps can be restored from: chunks of each store in a chain, and what the group says."""

    chunks: list[tuple[int, NDArray[np.int64], Floats]]
    updates: int
    tallies: NDArray[np.int64]
    reference: Reference


ids_lists = st.lists(st.sampled_from(POOL), unique=True, max_size=10)


class TrackedMachine(RuleBasedStateMachine):
    """Updates, full and incremental snapshots, pins, and restarts from the last snapshot, in any order."""

    @initialize(
        min_count=st.integers(1, 3), expire_after=st.integers(0, 4), optimizer=st.sampled_from(["sgd", "adagrad"])
    )
    def start(self, min_count: int, expire_after: int, optimizer: str) -> None:
        if min_count == 1:
            expire_after = max(1, expire_after)
        self.options = (min_count, expire_after, optimizer)
        self.store = store_of(*self.options)
        initial = dict(zip(POOL, pulled(self.store), strict=True))
        self.reference = Reference(min_count, expire_after, optimizer, initial)
        self.pins: list[tuple[list[RowCut], Floats]] = []
        self.chain: list[tuple[int, NDArray[np.int64], Floats]] = []
        self.saved = Snapshot([], 0, self.store.tallies.copy(), deepcopy(self.reference))

    @rule(ids=ids_lists)
    def push(self, ids: list[int]) -> None:
        updates = self.reference.updates
        update(self.store, ids, updates)
        self.reference.update(ids, gradients_of(ids, updates))

    @rule(full=st.booleans())
    def snapshot(self, full: bool) -> None:
        chain = [] if full else list(self.chain)
        for number, store in enumerate(self._stores()):
            with store.cut(dirty_only=not full) as cut:
                chain += [(number, ids, slabs) for ids, slabs in chunks(cut, 4)]
                cut.close(finished=True)
        self.chain = chain
        self.saved = Snapshot(list(chain), self.reference.updates, self.store.tallies.copy(), deepcopy(self.reference))

    @rule()
    def restart(self) -> None:
        self._unpin()
        self.store = store_of(*self.options)
        for number, ids, slabs in self.saved.chunks:
            self._stores()[number].load(ids, slabs, saved=True)
        for store in self._stores():
            store.cut(dirty_only=True).close(finished=True)
        self.chain = list(self.saved.chunks)
        self.store.timeline.updates[:] = self.saved.updates
        self.store.tallies[:] = self.saved.tallies
        self.reference = deepcopy(self.saved.reference)

    @precondition(lambda self: not self.pins)
    @rule()
    def pin(self) -> None:
        self.pins = [([store.cut() for store in self._stores()], self.reference.pull())]

    @precondition(lambda self: self.pins)
    @rule()
    def unpin(self) -> None:
        self._unpin()

    @invariant()
    def equals_the_reference(self) -> None:
        if not hasattr(self, "store"):
            return
        self._compare(pulled(self.store), self.reference.pull())
        for cuts, expected in self.pins:
            self._compare(pulled(cuts[0]), expected)
        figures = self.store.figures(EVERYWHERE)
        assert figures.rows == len(self.reference.rows)
        assert figures.candidates == len(self.reference.counts)
        assert (figures.admitted, figures.dropped) == (self.reference.admitted, self.reference.dropped)
        assert figures.expired == self.reference.admitted - len(self.reference.rows)
        ids, weights = self.store.stored_weights(0, self.store.rows)
        assert set(ids.tolist()) == set(self.reference.rows)
        self._compare(weights, np.array([self.reference.rows[one] for one in ids.tolist()]).reshape(-1, WIDTH))

    def _compare(self, found: Floats, expected: Floats) -> None:
        if self.options[2] == "sgd":
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def _stores(self) -> list[RowStore]:
        return [self.store, *([self.store.candidates] if self.store.candidates is not None else [])]

    def _unpin(self) -> None:
        for cuts, _ in self.pins:
            for cut in cuts:
                cut.close()
        self.pins = []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self._unpin()


TestTracked = TrackedMachine.TestCase
TestTracked.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_row_is_stored_by_the_update_that_is_the_min_count_th_with_its_id() -> None:
    store = store_of(3, 0)
    initial = pulled(store, [5])
    for updates in range(2):
        update(store, [5], updates)
        assert np.array_equal(pulled(store, [5]), initial)
        assert store.rows == 0
    update(store, [5], 2)
    np.testing.assert_array_equal(pulled(store, [5]), initial - RATE * gradients_of([5], 2))
    figures = store.figures(EVERYWHERE)
    assert (figures.rows, figures.candidates, figures.admitted, figures.dropped) == (1, 0, 1, 2)


def test_a_row_expires_after_so_many_updates_without_it_and_starts_from_its_initial_value() -> None:
    store = store_of(1, 2, "adagrad")
    initial = pulled(store, [5])
    update(store, [5], 0)
    trained = pulled(store, [5])
    update(store, [6], 1)
    assert np.array_equal(pulled(store, [5]), trained)
    update(store, [6], 2)
    assert np.array_equal(pulled(store, [5]), initial)
    fresh = store_of(1, 2, "adagrad")
    for one in (store, fresh):
        update(one, [5], 3)
    assert np.array_equal(pulled(store, [5]), pulled(fresh, [5]))


def test_rows_and_candidates_that_are_over_are_removed_from_memory() -> None:
    store = store_of(2, 5)
    for updates in range(200):
        ids = [100 * (updates // 2) + one for one in range(50)]
        update(store, ids, updates)
    assert isinstance(store.candidates, Candidates)
    assert store.figures(EVERYWHERE).admitted == 5000
    assert store.rows <= 50 * 8
    assert len(store.candidates.index) <= 50 * 8
    assert (store.index.find(array([100 * 99 + one for one in range(50)])) >= 0).all()


def test_nothing_is_removed_while_a_cut_is_open() -> None:
    store = store_of(1, 1)
    update(store, POOL, 0)
    with store.cut() as cut:
        for updates in range(1, 20):
            update(store, [100 + updates], updates)
        assert {one for ids, _ in chunks(cut, 4) for one in ids.tolist()} == set(POOL)
    for updates in range(20, 24):
        update(store, [100 + updates], updates)
    assert store.rows <= 2


def test_candidates_of_partitions_that_are_moving_in_stay_while_their_time_is_not_known() -> None:
    store = store_of(min_count=2, expire_after=3)
    for now in (0, 1):
        update(store, [5], now)
    assert store.candidates is not None
    store.timeline.updates[:] = 9
    update(store, [5], 9)  # The row has expired, so its id counts as seen once.
    assert store.candidates.rows == 1
    store.timeline.updates[:] = 0  # In a recipient, until its group is served.
    assert not store.candidates.removable(0, store.candidates.rows).any()
    store.timeline.updates[:] = 10
    update(store, [5], 10)
    assert pulled(store, [5]).any()


def test_a_reserved_push_allocates_nothing() -> None:
    store = store_of(2, 3)
    assert store.candidates is not None
    gradients = np.ones((100, WIDTH), np.float32)
    for updates in range(2):
        store.reserve(100)
        before = store.nbytes + store.candidates.nbytes
        store.push(RowGradients(np.arange(100), gradients), Update(0.1, updates))
        assert store.nbytes + store.candidates.nbytes == before
    assert store.rows == 100


def test_weights_of_another_model_count_as_admitted() -> None:
    store = store_of(3, 4)
    store.load_weights(array([1, 2]), np.ones((2, WIDTH), np.float32))
    assert np.array_equal(pulled(store, [1, 2]), np.ones((2, WIDTH), np.float32))
    update(store, [1], 0)
    np.testing.assert_array_equal(pulled(store, [1]), np.float32(1) - RATE * gradients_of([1], 0))
    assert store.figures(EVERYWHERE).admitted == 2


@pytest.mark.parametrize(("min_count", "expire_after"), [(2, 0), (1, 7)])
def test_only_tables_with_options_are_tracked(min_count: int, expire_after: int) -> None:
    plain = RowTable(name="t", width=2, initializer=RowInitializer(distribution="zeros"))
    adam, adagrad = (Optimizer(name=name, learning_rate=0.1) for name in ("adam", "adagrad"))
    assert type(row_store(plain, adam, 1, Timeline())) is RowStore
    assert row_store(plain, adam, 1, Timeline()).slab_width == 6 + 1
    assert row_store(plain, adagrad, 1, Timeline()).slab_width == 4
    assert store_of(min_count, expire_after, "adam").slab_width == 3 * WIDTH + 1
    assert store_of(min_count, expire_after, "adagrad").slab_width == 2 * WIDTH + (1 if expire_after else 0)
