"""The sum over a ring of real sockets, and its end when a member dies at any chunk."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import ProtocolError
from elasticdl.worker.ring.collective import Ring, RingBrokenError


@contextmanager
def rings(size: int) -> Iterator[list[Ring]]:
    """Members of one process, connected in a ring."""
    pairs = [socket.socketpair() for _ in range(size)]
    made = [Ring(rank, size, following=pairs[rank][0], preceding=pairs[rank - 1][1]) for rank in range(size)]
    try:
        yield made
    finally:
        for ring in made:
            ring.close()


def reduce_all(made: list[Ring], arrays: list[Any], numbers: list[int] | None = None) -> list[Exception | None]:
    """All members reduce at the same time; what each of them raised."""
    raised: list[Exception | None] = [None] * len(made)

    def reduce(rank: int) -> None:
        try:
            made[rank].all_reduce(arrays[rank], number=numbers[rank] if numbers else 0)
        except (RingBrokenError, ProtocolError) as error:
            raised[rank] = error

    threads = [threading.Thread(target=reduce, args=(rank,)) for rank in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a member is still blocked"
    return raised


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_all_members_have_the_same_sum(size: int, dtype: Any) -> None:
    with rings(size) as made:
        for elements in (1, 2, 17, 1000, 300_007):
            arrays = [np.random.default_rng(rank).normal(size=elements).astype(dtype) for rank in range(size)]
            expected = np.sum(arrays, axis=0, dtype=np.float64)
            assert reduce_all(made, arrays) == [None] * size
            np.testing.assert_allclose(arrays[0], expected, rtol=1e-5, atol=1e-5)
            for array in arrays[1:]:
                assert np.array_equal(array, arrays[0])


class DyingRing(Ring):
    """A member that dies when it has sent and received a number of chunks."""

    chunks = 0

    def send(self, parts: Any) -> int:
        self._count()
        return super().send(parts)

    def receive(self, target: memoryview) -> int:
        self._count()
        return super().receive(target)

    def _count(self) -> None:
        self.chunks -= 1
        if self.chunks < 0:
            raise RingBrokenError("killed")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_death_at_any_chunk_ends_the_reduction_of_the_others(size: int) -> None:
    """It is told, not timed: all others return, unless they have the sum already."""
    expected = np.full(20_000, float(size), np.float32)
    survived = 0
    for chunk in range(14 * size):
        with rings(size) as made:
            made[0].__class__, made[0].chunks = DyingRing, chunk  # type: ignore[attr-defined]
            arrays = [np.ones(20_000, np.float32) for _ in range(size)]
            raised = reduce_all(made, arrays)
            for error, array in zip(raised, arrays, strict=True):
                assert isinstance(error, RingBrokenError) or np.array_equal(array, expected)
            survived += raised[0] is None
    assert survived < 14 * size


def test_a_blocked_member_is_interrupted() -> None:
    with rings(3) as made:
        blocked = threading.Thread(target=lambda: reduce_all(made[:1], [np.ones(10, np.float32)]))
        blocked.start()
        made[0].abort()
        blocked.join(60)
        assert not blocked.is_alive()


def test_members_that_reduce_something_else_are_refused() -> None:
    with rings(2) as made:
        raised = reduce_all(made, [np.ones(10, np.float32), np.ones(10, np.float32)], numbers=[4, 5])
        assert any(isinstance(error, ProtocolError) for error in raised)
        assert all(error is not None for error in raised)
