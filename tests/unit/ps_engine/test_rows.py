"""One table: pull, push, refusals, load; cuts against a model that copies everything."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray
from tests.unit.ps_engine.chunks import chunks

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import Optimizer, RowInitializer, RowTable, VariableKind

WIDTH = 3
UNIFORM = RowInitializer(distribution="uniform", low=-1.0, high=1.0)
Slabs = dict[int, list[float]]


def store_of(optimizer: str = "adam", *, input_dim: int = 0, kind: VariableKind = VariableKind.TRAINABLE) -> RowStore:
    table = RowTable(name="clicks", width=WIDTH, initializer=UNIFORM, input_dim=input_dim, kind=kind)
    return RowStore(table, Optimizer(name=optimizer, learning_rate=0.1), seed=9, timeline=Timeline())


def array(ids: list[int]) -> NDArray[np.int64]:
    return np.array(ids, np.int64)


def pulled(source: RowStore | RowCut, ids: list[int]) -> NDArray[np.float32]:
    out = np.full((len(ids), WIDTH), np.nan, np.float32)
    source.pull(array(ids), out)
    return out


def push(store: RowStore, ids: list[int], seed: int = 0, iteration: int = 0) -> None:
    gradients = np.random.default_rng(seed).normal(size=(len(ids), WIDTH)).astype(np.float32)
    store.check(array(ids), gradients)
    store.push(RowGradients(array(ids), gradients), Update(0.1, iteration))


def slabs_of(cut: RowCut, rows_max: int = 4) -> Slabs:
    found = list(chunks(cut, rows_max))
    assert all(0 < len(ids) <= rows_max and len(ids) == len(slabs) for ids, slabs in found)
    pairs = [(int(row_id), slab.tolist()) for ids, slabs in found for row_id, slab in zip(ids, slabs, strict=True)]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def everything(store: RowStore) -> Slabs:
    with store.cut() as cut:
        return slabs_of(cut)


def test_a_push_that_names_a_row_twice_is_refused_before_anything_changes() -> None:
    store = store_of()
    push(store, [1, 2])
    before = everything(store)
    for ids in ([1, 1], [7, 2, 9, 7], [-1, 2**62, -1]):
        with pytest.raises(ProtocolError, match="occurs twice"):
            push(store, ids)
    assert everything(store) == before
    push(store, [*range(1000), -(2**63), 2**63 - 1])


def test_a_pull_stores_nothing_and_repeats() -> None:
    store = store_of()
    first = pulled(store, [5, -5, 5])
    assert np.array_equal(first, pulled(store, [5, -5, 5]))
    assert np.array_equal(first[0], first[2])
    assert store.rows == 0


def test_the_first_push_starts_from_the_pulled_row() -> None:
    store = store_of("sgd")
    before = pulled(store, [1, 2, 3])
    gradients = np.arange(6, dtype=np.float32).reshape(2, WIDTH)
    store.push(RowGradients(array([3, 1]), gradients), Update(0.5, 0))
    after = pulled(store, [1, 2, 3])
    np.testing.assert_array_equal(after[2], before[2] - gradients[0] * np.float32(0.5))
    np.testing.assert_array_equal(after[0], before[0] - gradients[1] * np.float32(0.5))
    np.testing.assert_array_equal(after[1], before[1])
    assert store.rows == 2


def test_accumulators_start_at_keras_initial_value() -> None:
    store = store_of("adagrad")
    store.push(RowGradients(array([1]), np.zeros((1, WIDTH), np.float32)), Update(0.1, 0))
    (slab,) = everything(store).values()
    assert slab[WIDTH:] == [np.float32(0.1)] * WIDTH


@pytest.mark.parametrize(
    ("ids", "gradients", "named"),
    [
        (np.array([1], np.int32), np.zeros((1, WIDTH), np.float32), "int32"),
        (array([1]), np.zeros((1, WIDTH + 1), np.float32), r"\[1, 4\]"),
        (array([1, 2]), np.zeros((1, WIDTH), np.float32), r"\[2, 3\]"),
        (array([1]), np.zeros((1, WIDTH)), "float64"),
        (array([10]), np.zeros((1, WIDTH), np.float32), r"\[0, 10\)"),
        (array([-1]), np.zeros((1, WIDTH), np.float32), r"\[0, 10\)"),
    ],
)
def test_a_malformed_push_is_refused(ids: NDArray[np.int64], gradients: NDArray[np.float32], named: str) -> None:
    with pytest.raises(ProtocolError, match=f"clicks.*{named}") as caught:
        store_of(input_dim=10).check(ids, gradients)
    assert not isinstance(caught.value, NotFiniteError)


def test_an_unaligned_or_strided_buffer_is_refused() -> None:
    gradients = np.zeros((2, WIDTH), np.float32)
    unaligned = np.frombuffer(bytes(17), np.int64, count=2, offset=1)
    for ids in (unaligned, np.arange(4)[::2]):
        with pytest.raises(ProtocolError, match=r"clicks.*contiguous, aligned"):
            store_of().check(ids, gradients)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_refused_apart(bad: float) -> None:
    gradients = np.full((2, WIDTH), 3e38, np.float32)
    store_of().check(array([1, 2]), gradients)
    gradients[1, 2] = bad
    with pytest.raises(NotFiniteError, match=r"clicks.*1 of 6"):
        store_of().check(array([1, 2]), gradients)


def test_a_frozen_table_has_no_slots_and_refuses_pushes() -> None:
    store = store_of(kind=VariableKind.FROZEN)
    assert store.slab_width == WIDTH
    with pytest.raises(ProtocolError, match="frozen"):
        store.check(array([1]), np.zeros((1, WIDTH), np.float32))


def test_read_only_buffers_are_accepted() -> None:
    ids = np.frombuffer(np.arange(4).tobytes(), np.int64)
    gradients = np.frombuffer(np.ones((4, WIDTH), np.float32).tobytes(), np.float32).reshape(4, WIDTH)
    store = store_of()
    store.check(ids, gradients)
    store.push(RowGradients(ids, gradients), Update(0.1, 0))
    assert store.rows == 4


def test_a_reserved_push_allocates_nothing() -> None:
    store = store_of()
    push(store, list(range(50)))
    with store.cut() as cut:
        store.reserve(100)
        before = store.nbytes
        push(store, list(range(100)))
        assert store.nbytes == before
        assert cut.nbytes > 0


def test_a_restored_store_learns_on_bit_for_bit() -> None:
    original, restored = store_of(), store_of()
    for seed in range(4):
        push(original, list(range(seed, 40 + seed)), seed, seed)
    with original.cut() as cut:
        for ids, slabs in chunks(cut, 7):
            restored.load(ids, slabs)
    for store in (original, restored):
        push(store, [3, 99, 41], 8, 4)
    assert everything(original) == everything(restored)


@pytest.mark.parametrize("width", [1, 2])
def test_weights_of_another_store_are_loaded_with_fresh_slots(width: int) -> None:
    table = RowTable(name="clicks", width=width, initializer=UNIFORM)
    trained, store = (
        RowStore(table, Optimizer(name="adam", learning_rate=0.1), seed=9, timeline=Timeline()) for _ in range(2)
    )
    trained.push(RowGradients(array([3, 5, 8]), np.ones((3, width), np.float32)), Update(0.1, 0))
    store.load_weights(*trained.stored_weights(0, 3))
    wanted = {row: [*slab[:width], *[0.0] * (2 * width + 1)] for row, slab in everything(trained).items()}
    assert everything(store) == wanted


def test_a_dirty_cut_holds_what_changed_since_the_last_finished_one() -> None:
    store = store_of()
    push(store, [1, 2, 3])
    first = store.cut(dirty_only=True)
    push(store, [2, 4])
    assert set(slabs_of(first)) == {1, 2, 3}
    first.close(finished=True)
    failed = store.cut(dirty_only=True)
    push(store, [5])
    assert set(slabs_of(failed)) == {2, 4}
    failed.close()
    third = store.cut(dirty_only=True)
    assert set(slabs_of(third)) == {2, 4, 5}
    third.close(finished=True)
    with store.cut(dirty_only=True) as nothing_new:
        assert slabs_of(nothing_new) == {}


def test_a_chain_of_dirty_cuts_restores_everything() -> None:
    original, restored = store_of(), store_of()
    for seed in range(6):
        push(original, list(range(seed * 7, seed * 7 + 20)), seed, seed)
        cut = original.cut(dirty_only=True)
        for ids, slabs in chunks(cut, 9):
            restored.load(ids, slabs)
        cut.close(finished=True)
    assert everything(restored) == everything(original)


def test_a_pin_checks_what_it_is_asked() -> None:
    store = store_of(input_dim=10)
    with store.cut() as pin, pytest.raises(ProtocolError, match=r"clicks.*\[0, 10\)"):
        pulled(pin, [10])


def test_a_third_open_cut_is_refused() -> None:
    store = store_of()
    with store.cut(), store.cut(), pytest.raises(InvariantError, match="clicks"):
        store.cut()
    store.cut().close()


def test_a_closed_cut_answers_nothing() -> None:
    store = store_of()
    push(store, [1])
    cut = store.cut()
    cut.close()
    cut.close()
    with pytest.raises(InvariantError, match="closed"):
        pulled(cut, [1])
    with pytest.raises(InvariantError, match="closed"):
        next(chunks(cut, 1))


def test_a_cut_read_by_another_thread_stays_what_it_was() -> None:
    """Pushes, growth included, go on while a thread reads the cut over and over; every reading is the same."""
    store = store_of()
    push(store, list(range(2000)))
    expected = everything(store)
    cut = store.cut()
    started, stop = threading.Event(), threading.Event()
    readings: list[bool] = []

    def read() -> None:
        while not stop.is_set() or not readings:
            readings.append(slabs_of(cut, 100) == expected)
            started.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        started.wait(10)
        for iteration in range(60):
            push(store, list(range(iteration * 150, iteration * 150 + 400)), iteration, iteration)
    finally:
        stop.set()
        reader.join()
    assert all(readings)
    assert slabs_of(cut, 1000) == expected
    assert everything(store) != expected


POOL = list(range(-14, 15))
ids_lists = st.lists(st.integers(-12, 12), unique=True, max_size=14)


class CutMachine(RuleBasedStateMachine):
    """Pushes, loads, a pin and a snapshot cut in any order; the model copies every slab at each cut."""

    @initialize(optimizer=st.sampled_from(["sgd", "adagrad", "adam"]))
    def start(self, optimizer: str) -> None:
        self.store = store_of(optimizer)
        self.dirty: set[int] = set()
        self.cuts: dict[str, tuple[RowCut, Slabs, Slabs, NDArray[np.float32]]] = {}
        self.dirtied_since_cut: set[int] = set()
        self.iteration = 0

    @rule(ids=ids_lists)
    def push(self, ids: list[int]) -> None:
        push(self.store, ids, self.iteration, self.iteration)
        self.iteration += 1
        self._touched(ids)

    @rule(ids=ids_lists)
    def load(self, ids: list[int]) -> None:
        slabs = np.full((len(ids), self.store.slab_width), self.iteration, np.float32)
        self.store.load(array(ids), slabs)
        self._touched(ids)

    @precondition(lambda self: "pin" not in self.cuts)
    @rule()
    def pin(self) -> None:
        self._cut("pin", dirty_only=False)

    @precondition(lambda self: "snapshot" not in self.cuts)
    @rule(dirty_only=st.booleans())
    def snapshot(self, dirty_only: bool) -> None:
        self._cut("snapshot", dirty_only=dirty_only)
        self.dirtied_since_cut = set()

    @precondition(lambda self: "pin" in self.cuts)
    @rule()
    def unpin(self) -> None:
        self.cuts.pop("pin")[0].close()

    @precondition(lambda self: "snapshot" in self.cuts)
    @rule(finished=st.booleans())
    def end_snapshot(self, finished: bool) -> None:
        self.cuts.pop("snapshot")[0].close(finished=finished)
        if finished:
            self.dirty = set(self.dirtied_since_cut)

    @invariant()
    def cuts_are_what_they_were(self) -> None:
        for cut, expected, now, weights in getattr(self, "cuts", {}).values():
            assert slabs_of(cut) == expected
            assert np.array_equal(pulled(cut, POOL), weights)
            assert cut.limit == len(now)

    def _cut(self, name: str, *, dirty_only: bool) -> None:
        now = everything(self.store)
        expected = {row_id: slab for row_id, slab in now.items() if not dirty_only or row_id in self.dirty}
        weights = pulled(self.store, POOL)
        self.cuts[name] = (self.store.cut(dirty_only=dirty_only), expected, now, weights)

    def _touched(self, ids: list[int]) -> None:
        self.dirty.update(ids)
        self.dirtied_since_cut.update(ids)

    def teardown(self) -> None:
        for cut, *_ in getattr(self, "cuts", {}).values():
            cut.close()


TestCuts = CutMachine.TestCase
TestCuts.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
