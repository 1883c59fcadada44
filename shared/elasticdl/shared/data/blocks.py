"""Records in memory: those of one shard, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.hashing import Hashes, total
from elasticdl.shared.data.ragged import Columns, ColumnValues, Ragged

_STRING_BYTES = 64
"""Of a short Python string."""

Offsets = Sequence[int] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnStack:
    """Columns of one type, stacked; ``values``: shape ``[columns, records, ...]``."""

    names: tuple[str, ...]
    values: npt.NDArray[np.generic]


class ColumnBatch(Mapping[str, ColumnValues]):
    """Typed columns of some records by name, each of shape ``[records, ...]``; columns of one type lie side by side.

    Args:
        names: all columns, in the order of the data.
        stacks: the columns that are not ragged.
    """

    __slots__ = ("_names", "ragged", "stacks")

    def __init__(self, names: tuple[str, ...], stacks: tuple[ColumnStack, ...], ragged: Mapping[str, Ragged]) -> None:
        self._names = names
        self.stacks = stacks
        self.ragged = ragged

    @classmethod
    def of(cls, columns: Columns) -> ColumnBatch:
        """Stack columns."""
        dense: dict[str, npt.NDArray[np.generic]] = {}
        ragged: dict[str, Ragged] = {}
        by_type: dict[tuple[np.dtype[np.generic], tuple[int, ...]], list[str]] = {}
        for name, values in columns.items():
            if isinstance(values, Ragged):
                ragged[name] = values
            else:
                dense[name] = values
                by_type.setdefault((values.dtype, values.shape[1:]), []).append(name)
        stacks = [ColumnStack(tuple(names), np.stack([dense[name] for name in names])) for names in by_type.values()]
        return cls(tuple(columns), tuple(stacks), ragged)

    @classmethod
    def joined(cls, batches: Sequence[ColumnBatch]) -> ColumnBatch:
        """The records of several batches of the same columns, at least one, one after the other."""
        first = batches[0]
        stacks = [
            ColumnStack(parts[0].names, np.concatenate([part.values for part in parts], axis=1))
            for parts in zip(*(batch.stacks for batch in batches), strict=True)
        ]
        ragged = {name: Ragged.joined([batch.ragged[name] for batch in batches]) for name in first.ragged}
        return cls(first._names, tuple(stacks), ragged)

    def take(self, places: slice | npt.NDArray[np.int64]) -> ColumnBatch:
        """Some of the records; views for a slice."""
        if isinstance(places, slice):
            stacks = [ColumnStack(each.names, each.values[:, places]) for each in self.stacks]
        else:
            stacks = [ColumnStack(each.names, each.values.take(places, axis=1)) for each in self.stacks]
        return ColumnBatch(
            self._names, tuple(stacks), {name: lists.take(places) for name, lists in self.ragged.items()}
        )

    @property
    def records(self) -> int:
        """Number of records."""
        if self.stacks:
            return len(self.stacks[0].values[0])
        return len(next(iter(self.ragged.values()), ()))

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with an estimate for the strings."""
        arrays = [stack.values for stack in self.stacks]
        arrays += [array for lists in self.ragged.values() for array in (lists.values, lists.splits)]
        return sum(array.nbytes + _STRING_BYTES * array.size * (array.dtype == object) for array in arrays)

    def __getitem__(self, name: str) -> ColumnValues:
        for stack in self.stacks:
            if name in stack.names:
                column: npt.NDArray[np.generic] = stack.values[stack.names.index(name)]
                return column
        return self.ragged[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class RecordBlock:
    """The records of a shard, or of several one after the other.

    Attributes:
        lines: raw bytes of each record (CSV: without line break); ``None`` for Parquet.
        hashes: record hashes, shape ``[records]``.
        first: place of the first record in the columns that ``parse`` gives.
    """

    def __init__(
        self, *, lines: list[bytes] | None, hashes: Hashes, parse: Callable[[], ColumnBatch], first: int = 0
    ) -> None:
        self.lines = lines
        self.hashes = hashes
        self.first = first
        self._parse = parse

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def parsed(self) -> ColumnBatch:
        """What ``parse`` gives: the columns of these records, which may have others before and after them.

        Raises:
            UserError: a CSV value is not of the schema's type; names file and record.
        """
        return self._parse()

    @property
    def columns(self) -> ColumnBatch:
        """Typed columns, each of shape ``[records, ...]``; parsed when first asked for; empty for TFRecord."""
        return self.parsed.take(slice(self.first, self.first + len(self.hashes)))

    @classmethod
    def joined(cls, blocks: Sequence[RecordBlock]) -> RecordBlock:
        """The records of several blocks of one data set, at least one, one after the other."""
        if len(blocks) == 1:
            return blocks[0]
        lines = [line for block in blocks for line in block.lines or ()]
        return cls(
            lines=None if blocks[0].lines is None else lines,
            hashes=np.concatenate([block.hashes for block in blocks]),
            parse=lambda: ColumnBatch.joined([block.columns for block in blocks]),
        )

    def take(self, offsets: Offsets) -> RawBatch:
        """Some records in the given order of places: a ``range``, any sequence or an array of integers."""
        return RawBatch(self, offsets)


class RawBatch:
    """Some records of a block, in the order asked for; ``checksum``: sum of the record hashes modulo 2**64."""

    def __init__(self, block: RecordBlock, offsets: Offsets) -> None:
        self._block = block
        if isinstance(offsets, range) and offsets.step == 1:
            self._places: slice | npt.NDArray[np.int64] = slice(offsets.start, offsets.stop)
        else:
            self._places = np.asarray(offsets, dtype=np.int64)
        self._columns: ColumnBatch | None = None
        self.count = len(offsets)
        self.checksum = total(block.hashes[self._places])

    @property
    def records(self) -> list[bytes] | ColumnBatch:
        """For ``feed``: raw bytes of each record (CSV lines, TFRecord data), or for Parquet the columns."""
        lines = self._block.lines
        if lines is None:
            return self.columns
        if isinstance(self._places, slice):
            return lines[self._places]
        return [lines[place] for place in self._places.tolist()]

    @property
    def columns(self) -> ColumnBatch:
        """For ``feed_batch``: typed columns, each of shape ``[count]``; empty for TFRecord."""
        if self._columns is None:
            places, first = self._places, self._block.first
            if isinstance(places, slice):
                shifted: slice | npt.NDArray[np.int64] = slice(places.start + first, places.stop + first)
            else:
                shifted = places + first if first else places
            self._columns = self._block.parsed.take(shifted)
        return self._columns
