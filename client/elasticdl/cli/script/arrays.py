"""The data of a call of ``fit()``: columns of one NumPy file in the job's folder."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

import numpy as np

from elasticdl.cli.script import early_data
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shipping.columns import Array

_PART_BYTES = 1 << 24
_WRITE_BYTES = 1 << 16
"""A larger write takes pages for the file that the host may have to provide first: up to seven times as long."""


def records_of(columns: Mapping[str, Array]) -> int:
    """How many records columns have.

    Raises:
        UserError: they differ, or there are none.
    """
    counts = {name: len(array) for name, array in columns.items()}
    if len(set(counts.values())) > 1:
        raise UserError(
            f"the arrays of fit() differ in length: {', '.join(f'{n} has {c:,}' for n, c in counts.items())}",
            hint="Give the same number of records in each.",
        )
    if not counts or not next(iter(counts.values())):
        raise UserError("fit() is given no records")
    return next(iter(counts.values()))


def write(file: Path, columns: Mapping[str, Array], before_part: Callable[[], None] = lambda: None) -> None:
    """Write columns to an ``.npz`` file that workers read at any place: uncompressed, record after record.

    Args:
        before_part: is called before each part of some MiB, and may raise to end the writing.
    """
    with file_errors(f"the data of fit() can't be written to {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as raw, ThreadPoolExecutor(1) as thread:
            behind = _WritingBehind(raw, thread)
            with zipfile.ZipFile(cast("IO[bytes]", behind), "w") as archive:
                for name, array in columns.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        _write_column(member, np.ascontiguousarray(array), before_part)
            behind.flush()


class _WritingBehind:
    """A file, written by a thread while its user makes the check sum of what follows."""

    def __init__(self, file: IO[bytes], thread: ThreadPoolExecutor) -> None:
        self._file = file
        self._thread = thread
        self._last: Future[None] | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Begin to write bytes that stay as they are, once all earlier ones are written; returns how many."""
        self.flush()
        self._last = self._thread.submit(self._write, memoryview(data))
        return len(data)

    def flush(self) -> None:
        """Wait until everything is written. Raises ``OSError``."""
        if self._last is not None:
            self._last.result()

    def _write(self, data: memoryview) -> None:
        for start in range(0, len(data), _WRITE_BYTES):
            self._file.write(data[start : start + _WRITE_BYTES])


def write_with_index(file: Path, columns: Mapping[str, Array], before_part: Callable[[], None]) -> None:
    """As ``write``, and make the index of the file; see ``early_data``."""
    scanned = None
    with contextlib.suppress(UserError):  # The process of the job says what is wrong.
        scanned = early_data.index_arrays(file, columns, before_part)
    write(file, columns, before_part)
    if scanned:
        early_data.save_index(file, scanned)


def _write_column(member: IO[bytes], array: Array, before_part: Callable[[], None]) -> None:
    """As ``np.savez`` does, which copies each part of an array once more."""
    np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
    content = array.reshape(-1).view(np.uint8)
    for start in range(0, len(content), _PART_BYTES):
        before_part()
        member.write(content[start : start + _PART_BYTES].data)
