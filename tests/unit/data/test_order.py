"""NumPy computes the same permutation as the plan, for any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import order
from elasticdl.shared.job.permutation import Permutation

KEYS = st.integers(0, 2**64 - 1)


@given(size=st.integers(0, 700), key=KEYS, data=st.data())
def test_the_same_records_as_one_by_one(size: int, key: int, data: st.DataObject) -> None:
    permutation = Permutation(size, key)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert list(order.take(permutation, start, stop)) == [permutation[place] for place in range(start, stop)]


@given(size=st.integers(1, 2**48), key=KEYS, data=st.data())
def test_sizes_too_large_to_enumerate(size: int, key: int, data: st.DataObject) -> None:
    permutation = Permutation(size, key)
    start = data.draw(st.integers(0, size - 1))
    stop = min(start + 20, size)
    assert list(order.take(permutation, start, stop)) == [permutation[place] for place in range(start, stop)]


def test_a_range_of_a_range() -> None:
    assert order.take(range(10), 3, 7) == range(3, 7)


@pytest.mark.parametrize("whole", [Permutation(10, 1), range(10)])
@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 11), (5, 4)])
def test_positions_outside_are_refused(whole: Permutation | range, start: int, stop: int) -> None:
    with pytest.raises(IndexError):
        order.take(whole, start, stop)
