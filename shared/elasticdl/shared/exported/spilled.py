"""Rows of a table on the local disk, in files by the hash of their id, each small enough to be read whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elasticdl.shared.exported.merging import newest_rows, positions_of

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_Bytes = npt.NDArray[np.uint8]


class SpilledRows:
    """Takes the rows of a table in any order, and gives them by file.

    Args:
        folder: an empty local folder.
        bits: the first bits of an id's hash are the position of its file.
    """

    def __init__(self, folder: Path, bits: int, slab_width: int) -> None:
        self._folder = folder
        self._bits = bits
        self._slab_width = slab_width

    def add(self, ids: Ids, slabs: Floats) -> None:
        """Add rows: ids int64[n], slabs float32[n, slab width]. A later row of an id replaces an earlier one."""
        positions = positions_of(ids, self._bits)
        order = np.argsort(positions, kind="stable")
        records = np.empty((ids.size, 8 + 4 * self._slab_width), np.uint8)
        records[:, :8] = ids[order].view(np.uint8).reshape(-1, 8)
        records[:, 8:] = np.ascontiguousarray(slabs[order]).view(np.uint8).reshape(ids.size, -1)
        present, starts = np.unique(positions[order], return_index=True)
        for position, part in zip(present.tolist(), np.split(records, starts[1:]), strict=True):
            with self._file(position).open("ab") as file:
                file.write(part.data)

    def parts(self) -> Iterator[tuple[int, Ids, Floats]]:
        """The newest row of each id, a file at a time; its rows are sorted by id.

        Yields:
            The position of the file, ids int64[n], slabs float32[n, slab width].
        """
        for position in range(1 << self._bits):
            file = self._file(position)
            if not file.exists():
                continue
            records = np.fromfile(file, np.uint8).reshape(-1, 8 + 4 * self._slab_width)
            file.unlink()
            ids = np.ascontiguousarray(records[:, :8]).view(np.int64).reshape(-1)
            newest = newest_rows(ids)
            slabs = records[newest, 8:].view(np.float32)
            yield position, ids[newest], slabs

    def _file(self, position: int) -> Path:
        return self._folder / f"rows-{position}"
