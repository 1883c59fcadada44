"""The order of ``--shuffle=global``: blocks of records, permuted over the whole data set. See ADR 22."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from elasticdl.shared.job.permutation import Permutation, derive_key

BLOCKS_PER_TASK = 16
"""A batch has records from about as many places; reading a task costs as many ranges."""
_ROTATION_KEY, _ORDER_KEY = 5, 6
"""Distinguish these seeds from those of the plan's other permutations, of feeds and of steps."""

Range = tuple[int, int, int]
"""Source, first record, end."""


def block_records(task_records: int) -> int:
    """Records of a block."""
    return -(-task_records // BLOCKS_PER_TASK)


class GlobalOrder:
    """The order of all records in one epoch; it needs no memory.

    Args:
        epoch: counted from 0.
    """

    def __init__(self, firsts: Sequence[int], block: int, seed: int, epoch: int) -> None:
        self._firsts = firsts
        self._block = block
        self._records = firsts[-1]
        self._rotation = derive_key(seed, _ROTATION_KEY, epoch) % max(self._records, 1)
        self._blocks = Permutation(self._records // block, derive_key(seed, _ORDER_KEY, epoch))

    def ranges(self, start: int, end: int) -> tuple[Range, ...]:
        """The records at the positions ``[start, end)`` of the order, as ranges in ascending order."""
        found: list[Range] = []
        for begin, stop in self._rotated(start, end):
            found += self._of_sources(begin, stop)
        found.sort()
        joined = found[:1]
        for source, first, last in found[1:]:
            if joined[-1][0] == source and joined[-1][2] == first:
                joined[-1] = source, joined[-1][1], last
            else:
                joined.append((source, first, last))
        return tuple(joined)

    def _rotated(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of the data set's records, without those that cross its end."""
        while start < end:
            number, offset = divmod(start, self._block)
            # What is behind the last whole block stays there.
            begin = self._blocks[number] * self._block + offset if number < self._blocks.size else start
            count = min(end - start, self._block - offset)
            first = (begin + self._rotation) % self._records
            until_end = min(count, self._records - first)
            yield first, first + until_end
            if until_end < count:
                yield 0, count - until_end
            start += count

    def _of_sources(self, begin: int, stop: int) -> Iterator[Range]:
        while begin < stop:
            source = bisect_right(self._firsts, begin) - 1
            first, end = self._firsts[source], min(stop, self._firsts[source + 1])
            yield source, begin - first, end - first
            begin = end
