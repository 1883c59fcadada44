"""A set of integers kept as disjoint half-open ranges; small while the integers are mostly contiguous."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Integers as sorted, disjoint, non-touching ranges ``[start, end)``."""

    __slots__ = ("_ends", "_size", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._size = 0
        for start, end in ranges:
            self.add_range(start, end)

    def __contains__(self, value: int) -> bool:
        index = bisect_right(self._starts, value) - 1
        return index >= 0 and value < self._ends[index]

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()})"

    def __iter__(self) -> Iterator[int]:
        for start, end in self.ranges():
            yield from range(start, end)

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges in order."""
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, value: int) -> bool:
        """Add one integer; returns whether it was missing."""
        starts, ends = self._starts, self._ends
        place = bisect_right(starts, value)
        end = ends[place - 1] if place else value - 1
        if value < end:
            return False
        self._size += 1
        extends_next = place < len(starts) and starts[place] == value + 1
        if value == end and extends_next:
            ends[place - 1] = ends.pop(place)
            del starts[place]
        elif value == end:
            ends[place - 1] = value + 1
        elif extends_next:
            starts[place] = value
        else:
            starts.insert(place, value)
            ends.insert(place, value + 1)
        return True

    def add_range(self, start: int, end: int) -> None:
        """Add ``[start, end)``; empty ranges are ignored."""
        if start >= end:
            return
        if not self._starts:
            self._starts, self._ends, self._size = [start], [end], end - start
            return
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._size += end - start - sum(self._ends[first:last]) + sum(self._starts[first:last])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def discard(self, value: int) -> None:
        """Remove one integer, if it is in the set."""
        place = bisect_right(self._starts, value) - 1
        if place < 0 or value >= self._ends[place]:
            return
        start, end = self._starts[place], self._ends[place]
        self._starts[place : place + 1] = [start] * (value > start) + [value + 1] * (value + 1 < end)
        self._ends[place : place + 1] = [value] * (value > start) + [end] * (value + 1 < end)
        self._size -= 1

    def first_missing(self, start: int) -> int:
        """The least integer from ``start`` on that is not in the set."""
        index = bisect_right(self._starts, start) - 1
        return self._ends[index] if index >= 0 and start < self._ends[index] else start

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges of ``[start, end)`` that are not in the set, in order."""
        position = start
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            low = self._starts[index]
            if low >= end:
                break
            if low > position:
                yield position, low
            position = self._ends[index]
        if position < end:
            yield position, end

    def is_within(self, start: int, end: int) -> bool:
        """Whether every integer of the set is in ``[start, end)``."""
        return not self._starts or (start <= self._starts[0] and self._ends[-1] <= end)

    def contains_all(self, other: RangeSet) -> bool:
        """Whether every integer of the other set is in this one."""
        for start, end in zip(other._starts, other._ends, strict=True):
            index = bisect_right(self._starts, start) - 1
            if index < 0 or self._ends[index] < end:
                return False
        return True

    def intersection(self, other: RangeSet) -> RangeSet:
        """The integers that both sets have."""
        common = RangeSet()
        mine, theirs = self.ranges(), other.ranges()
        i = j = 0
        while i < len(mine) and j < len(theirs):
            common.add_range(max(mine[i][0], theirs[j][0]), min(mine[i][1], theirs[j][1]))
            if mine[i][1] <= theirs[j][1]:
                i += 1
            else:
                j += 1
        return common

    def union(self, other: RangeSet) -> RangeSet:
        """The integers that are in one of the sets or in both."""
        both = self.copy()
        for start, end in other.ranges():
            both.add_range(start, end)
        return both

    def difference(self, other: RangeSet) -> RangeSet:
        """The integers that the other set does not have."""
        return RangeSet(gap for start, end in self.ranges() for gap in other.gaps(start, end))

    def copy(self) -> RangeSet:
        """An independent copy."""
        other = RangeSet()
        other._starts, other._ends, other._size = self._starts.copy(), self._ends.copy(), self._size
        return other
