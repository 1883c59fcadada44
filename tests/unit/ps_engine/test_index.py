"""The id index against a dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elasticdl.ps.engine.index import IdIndex
from elasticdl.ps.engine.kernels import index as kernels
from elasticdl.shared.job.permutation import mix64

# A small pool, so that ids come again; the ends of int64; multiples of a power of two, which collide in weak hashes.
any_id = st.one_of(
    st.integers(-8, 8),
    st.sampled_from([-(2**63), 2**63 - 1, 2**32, -(2**32)]),
    st.integers(-1000, 1000).map(lambda n: n << 40),
    st.integers(-(2**63), 2**63 - 1),
)


def array(ids: list[int]) -> NDArray[np.int64]:
    return np.array(ids, np.int64)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(any_id, max_size=120)), max_size=8))
def test_answers_as_a_dict(steps: list[tuple[bool, list[int]]]) -> None:
    index, model = IdIndex(), dict[int, int]()
    for inserting, ids in steps:
        if inserting:
            for row_id in ids:
                model.setdefault(row_id, len(model))
            assert index.insert(array(ids)).tolist() == [model[row_id] for row_id in ids]
        else:
            assert index.find(array(ids)).tolist() == [model.get(row_id, -1) for row_id in ids]
        assert len(index) == len(model)
        assert index.ids.tolist() == list(model)


def test_grows_through_many_doublings() -> None:
    ids = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 50_000)
    index = IdIndex()
    for part in np.array_split(ids, 37):
        index.insert(part)
    assert np.array_equal(index.ids[index.find(ids)], ids)
    assert (index.find(np.arange(1000)) == -1).all()


def test_reserved_room_is_used_without_allocating() -> None:
    index = IdIndex()
    index.reserve(1000)
    before = index.nbytes
    index.insert(np.arange(1000))
    assert index.nbytes == before
    assert len(index) == 1000


def test_ids_of_one_partition_do_not_crowd() -> None:
    """A ps gets ids whose hash is alike: the table's own hash must spread them all the same."""
    ids = np.array([row_id for row_id in range(2**18) if mix64(row_id) % 64 == 3])
    table = np.full(2 * 2**13, kernels.EMPTY, np.int64)
    kernels.insert(table, ids, np.empty(ids.size, np.int64), np.empty(ids.size, np.int64), 0)
    free = np.flatnonzero(table[1::2] == kernels.EMPTY)
    assert free.size == 2**13 - ids.size
    # Runs at half load are about 30 long at most; ids that crowd into a 64th of the table make one run of thousands.
    assert np.diff(free).max() < 200
