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
class ScanOrder:
    """Files to scan.

    Attributes:
        objects: consecutive ones of a data set, at least one.
        first: number of the first of them in the plan.
        options: how to read them; can be pickled.
    """

    objects: tuple[DataObject, ...]
    first: int
    options: ReaderOptions

    @property
    def uri(self) -> str:
        """Of one of the files: all are in one store."""
        return self.objects[0].info.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOrder:
    """A range to scan.

    Attributes:
        data: the file.
        part: the range.
        options: how to read it; can be pickled.
    """

    data: DataObject
    part: FileRange
    options: ReaderOptions

    @property
    def uri(self) -> str:
        """Of the file."""
        return self.data.info.uri


def plain(options: ReaderOptions) -> ReaderOptions:
    """Options that can be pickled: read-only views of dicts can't."""
    return replace(options, column_types=dict(options.column_types), fill_missing=dict(options.fill_missing))


def group(objects: Sequence[DataObject], options: ReaderOptions) -> list[ScanOrder]:
    """Divide a data set into groups of consecutive files.

    Args:
        objects: all of its files.
        options: how to read them.
    """
    options = plain(options)
    orders: list[ScanOrder] = []
    start, size = 0, 0
    for number, data in enumerate(objects):
        is_full = number - start >= GROUP_FILES_MAX or size + data.info.size_bytes > GROUP_BYTES_MAX
        if number > start and is_full:
            orders.append(ScanOrder(objects=tuple(objects[start:number]), first=start, options=options))
            start, size = number, 0
        size += data.info.size_bytes
    if start < len(objects):
        orders.append(ScanOrder(objects=tuple(objects[start:]), first=start, options=options))
    return orders
