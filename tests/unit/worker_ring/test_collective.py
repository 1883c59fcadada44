"""The sum over a ring of real sockets, and its end when a member dies at any chunk."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import ProtocolError
from elasticdl.worker.ring.blocks import Block, Blocks, Mapped
from elasticdl.worker.ring.collective import Ring, RingBrokenError


@contextmanager
def rings(size: int, first: type[Ring] = Ring) -> Iterator[list[Ring]]:
    """Members of one process, connected in a ring."""
    pairs = [socket.socketpair() for _ in range(size)]
    made = [
        (Ring if rank else first)(rank, size, following=pairs[rank][0], preceding=pairs[rank - 1][1])
        for rank in range(size)
    ]
    try:
        yield made
    finally:
        for ring in made:
            ring.close()


class Summand:
    """An array of a member, in memory that others may read or not."""

    def __init__(self, values: Any, *, is_shared: bool, block: Block | None = None) -> None:
        self.block = (block or Block(values.nbytes)) if is_shared else None
        self.array = self.block.bytes.view(values.dtype) if self.block else np.empty_like(values)
        self.array[:] = values


def reduce_all(made: list[Ring], summands: list[Summand], numbers: list[int] | None = None) -> list[Exception | None]:
    """All members reduce at the same time; what each of them raised."""
    raised: list[Exception | None] = [None] * len(made)

    def reduce(rank: int) -> None:
        one = summands[rank]
        try:
            made[rank].all_reduce(one.array, number=numbers[rank] if numbers else 0, block=one.block)
        except (RingBrokenError, ProtocolError) as error:
            raised[rank] = error

    threads = [threading.Thread(target=reduce, args=(rank,)) for rank in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a member is still blocked"
    return raised


def ones(elements: int, *, is_shared: bool = False) -> Summand:
    return Summand(np.ones(elements, np.float32), is_shared=is_shared)


@pytest.mark.parametrize("sharing", ["none", "all", "some"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_all_members_have_the_same_sum(size: int, dtype: Any, sharing: str) -> None:
    with rings(size) as made:
        for elements in (1, 17, 4096, 300_007, 20_000):
            values = [np.random.default_rng(rank).normal(size=elements).astype(dtype) for rank in range(size)]
            shared = [sharing == "all" or (sharing == "some" and rank % 2 == 0) for rank in range(size)]
            summands = [Summand(one, is_shared=is_one) for one, is_one in zip(values, shared, strict=True)]
            assert reduce_all(made, summands) == [None] * size
            expected = np.sum(values, axis=0, dtype=np.float64)
            np.testing.assert_allclose(summands[0].array, expected, rtol=1e-5, atol=1e-5)
            for one in summands[1:]:
                assert np.array_equal(one.array, summands[0].array)


def test_a_block_is_used_again_once_the_neighbour_has_read_it() -> None:
    blocks = [Blocks(), Blocks(), Blocks()]
    keys: list[set[bytes]] = [set(), set(), set()]
    with rings(3) as made:
        last: list[Summand] = []
        for number in range(20):
            values = np.full(50_000, 1.0 + number, np.float32)
            taken = [one.take(values.nbytes) for one in blocks]
            summands = [Summand(values, is_shared=True, block=block) for block in taken]
            assert reduce_all(made, summands) == [None] * 3
            assert all((one.array == 3 * (1.0 + number)).all() for one in summands)
            for rank, block in enumerate(taken):
                keys[rank].add(block.key)
            for rank, one in enumerate(last):
                assert one.block is not None
                blocks[rank].give_back(one.block)
            last = summands
    assert all(len(used) <= 4 for used in keys)


def test_a_block_is_never_used_again_after_a_break() -> None:
    """The neighbour may be late, and still read it."""
    blocks = Blocks()
    with rings(2) as made:
        block = blocks.take(200_000)
        first = Summand(np.ones(50_000, np.float32), is_shared=True, block=block)
        thread = threading.Thread(target=lambda: reduce_all(made[:1], [first]))
        thread.start()
        while not block.unread:
            pass
        made[1].abort()
        thread.join(60)
        blocks.give_back(block)
        assert blocks.take(200_000) is not block


def test_another_file_under_the_number_of_a_descriptor_is_not_taken_for_the_block() -> None:
    block, other = Block(5000), Block(5000)
    assert Mapped().open(os.getpid(), block.descriptor, block.key, 5000) is not None
    assert Mapped().open(os.getpid(), other.descriptor, block.key, 5000) is None
    assert Mapped().open(os.getpid(), block.descriptor, block.key, 6000) is None
    assert Mapped().open(os.getpid(), 999_999, block.key, 5000) is None


class StrangerRing(Ring):
    """A member that can't read the memory of the previous one."""

    def __init__(self, rank: int, size: int, *, following: socket.socket, preceding: socket.socket) -> None:
        super().__init__(rank, size, following=following, preceding=preceding)
        self._mapped.open = lambda *_: None  # type: ignore[method-assign]


def test_a_member_that_can_not_read_the_memory_of_another_one_gets_bytes() -> None:
    with rings(3, first=StrangerRing) as made:
        for _ in range(3):
            summands = [ones(100_000, is_shared=True) for _ in range(3)]
            assert reduce_all(made, summands) == [None] * 3
            assert all((one.array == 3).all() for one in summands)
            assert summands[2].block is not None
            assert summands[2].block.unread == 0


class DyingRing(Ring):
    """A member that dies when it has sent and received a number of chunks."""

    chunks = 0

    def send(self, data: memoryview) -> int:
        self._count()
        return super().send(data)

    def receive(self, target: memoryview) -> int:
        self._count()
        return super().receive(target)

    def _count(self) -> None:
        self.chunks -= 1
        if self.chunks < 0:
            raise RingBrokenError("killed")


@pytest.mark.parametrize(("elements", "is_shared"), [(20_000, False), (20_000, True), (2_000, False)])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_death_at_any_chunk_ends_the_reduction_of_the_others(size: int, elements: int, is_shared: bool) -> None:
    """It is told, not timed: all others return, unless they have the sum already."""
    expected = np.full(elements, float(size), np.float32)
    survived = 0
    for chunk in range(12 * size):
        with rings(size, first=DyingRing) as made:
            assert isinstance(made[0], DyingRing)
            made[0].chunks = chunk
            summands = [ones(elements, is_shared=is_shared) for _ in range(size)]
            raised = reduce_all(made, summands)
            for error, one in zip(raised, summands, strict=True):
                assert isinstance(error, RingBrokenError) or np.array_equal(one.array, expected)
            survived += raised[0] is None
    assert survived < 12 * size


def test_a_blocked_member_is_interrupted() -> None:
    with rings(3) as made:
        blocked = threading.Thread(target=lambda: reduce_all(made[:1], [ones(10)]))
        blocked.start()
        made[0].abort()
        blocked.join(60)
        assert not blocked.is_alive()


def test_members_that_reduce_something_else_are_refused() -> None:
    with rings(2) as made:
        raised = reduce_all(made, [ones(10), ones(10)], numbers=[4, 5])
        assert any(isinstance(error, ProtocolError) for error in raised)
        assert all(error is not None for error in raised)
