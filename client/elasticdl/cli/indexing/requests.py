"""What one process scans: a group of files, or a range of a large file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elasticdl.cli.indexing.ranges import FileRange
from elasticdl.shared.data import DataObject, ReaderOptions

GROUP_FILES_MAX = 64
"""Files of a group: sending one costs as much as scanning a small file."""
GROUP_BYTES_MAX = 16 << 20
"""Bytes of a group of several files, so that all processes are busy until the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """Files to scan.

    Attributes:
        objects: some of a data set in their order, at least one.
        options: how to read them; can be pickled.
        part: what to scan of the only file; None: everything.
    """

    objects: tuple[DataObject, ...]
    numbers: Sequence[int]
    options: ReaderOptions
    part: FileRange | None = None


def group(objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int]) -> list[ScanRequest]:
    """Divide files of a data set into groups."""
    # Read-only views of dicts can't be pickled.
    options = replace(options, column_types=dict(options.column_types), fill_missing=dict(options.fill_missing))
    requests: list[ScanRequest] = []

    def add(start: int, stop: int) -> None:
        requests.append(ScanRequest(objects=tuple(objects[start:stop]), numbers=numbers[start:stop], options=options))

    start, size = 0, 0
    for place, data in enumerate(objects):
        is_full = place - start >= GROUP_FILES_MAX or size + data.info.size_bytes > GROUP_BYTES_MAX
        if place > start and is_full:
            add(start, place)
            start, size = place, 0
        size += data.info.size_bytes
    if start < len(objects):
        add(start, len(objects))
    return requests
