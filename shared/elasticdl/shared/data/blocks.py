"""Records in memory: those of one shard, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from elasticdl.shared.data.hashing import Hashes, total
from elasticdl.shared.job.plan import Shard

Columns = dict[str, npt.NDArray[np.generic]]
Offsets = Sequence[int] | npt.NDArray[np.int64]


class RecordBlock:
    """The records of one shard, in file order.

    Attributes:
        shard: which records.
        lines: raw bytes of each record (CSV: without line break); ``None`` for Parquet.
        hashes: record hashes, shape ``[records]``.
    """

    def __init__(
        self, *, shard: Shard, lines: list[bytes] | None, hashes: Hashes, parse: Callable[[], Columns]
    ) -> None:
        self.shard = shard
        self.lines = lines
        self.hashes = hashes
        self._parse = parse

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def columns(self) -> Columns:
        """Typed columns, each of shape ``[records]``; parsed when first asked for; empty for TFRecord.

        Raises:
            UserError: a CSV value is not of the schema's type; names file and record.
        """
        return self._parse()

    def reordered(self, offsets: npt.NDArray[np.int64]) -> RecordBlock:
        """The same records in another order, copied once: batches of consecutive ones are then views.

        Args:
            offsets: a permutation of ``range(len(self))``, counted from the shard's start.
        """
        lines = None if self.lines is None else [self.lines[offset] for offset in offsets.tolist()]

        def parse() -> Columns:
            return {name: values[offsets] for name, values in self._parse().items()}

        return RecordBlock(shard=self.shard, lines=lines, hashes=self.hashes[offsets], parse=parse)

    def take(self, offsets: Offsets) -> RawBatch:
        """Some records in the given order.

        Args:
            offsets: counted from the shard's start; a ``range``, any sequence or an array of integers.
        """
        return RawBatch(self, offsets)


class RawBatch:
    """Some records of a block, in the order in which they were asked for."""

    def __init__(self, block: RecordBlock, offsets: Offsets) -> None:
        self._block = block
        if isinstance(offsets, range) and offsets.step == 1:
            self._places: slice | npt.NDArray[np.int64] = slice(offsets.start, offsets.stop)
        else:
            self._places = np.asarray(offsets, dtype=np.int64)
        self.count = len(offsets)

    @cached_property
    def checksum(self) -> int:
        """Sum of the record hashes modulo 2**64."""
        return total(self._block.hashes[self._places])

    @cached_property
    def records(self) -> list[bytes] | Columns:
        """For ``feed``: raw bytes of each record (CSV lines, TFRecord data), or for Parquet the columns."""
        lines = self._block.lines
        if lines is None:
            return self.columns
        if isinstance(self._places, slice):
            return lines[self._places]
        return [lines[place] for place in self._places.tolist()]

    @cached_property
    def columns(self) -> Columns:
        """For ``feed_batch``: typed columns, each of shape ``[count]``; empty for TFRecord."""
        return {name: values[self._places] for name, values in self._block.columns.items()}
