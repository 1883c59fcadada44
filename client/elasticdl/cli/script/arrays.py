"""The data of a call of ``fit()``: columns of one NumPy file in the job's folder."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import IO

import numpy as np

from elasticdl.cli.script import early_data
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shipping.columns import Array

_PART_BYTES = 1 << 26


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
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write_column(member, np.ascontiguousarray(array), before_part)


def write_with_index(file: Path, columns: Mapping[str, Array], before_part: Callable[[], None]) -> None:
    """As ``write``, and make the index of the file meanwhile; see ``early_data``."""
    stopped = Event()
    with ThreadPoolExecutor(1) as thread:
        scanned = thread.submit(early_data.index_arrays, file, columns, stopped)
        try:
            write(file, columns, before_part)
        except BaseException:
            stopped.set()
            raise
        with contextlib.suppress(UserError):  # The process of the job says what is wrong.
            early_data.save_index(file, scanned.result())


def _write_column(member: IO[bytes], array: Array, before_part: Callable[[], None]) -> None:
    """As ``np.savez`` does, which copies each part of an array once more."""
    np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
    content = array.reshape(-1).view(np.uint8)
    for start in range(0, len(content), _PART_BYTES):
        before_part()
        member.write(content[start : start + _PART_BYTES].data)
