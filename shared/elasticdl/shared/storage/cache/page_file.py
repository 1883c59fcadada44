"""A file with pages of one object: a table with a checksum for each page, then the pages at fixed places.

    table: 8 bytes for each page, little-endian: 0: absent; else 1 << 32 | CRC-32C of the page; filled to whole blocks
    pages: 64 KiB each, the last one of the object shorter; an absent page is a hole in the file

A page counts only if its checksum fits. So a page that was half written when a process or the machine died is absent,
and no write has to wait for the disk.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import google_crc32c

PAGE_BYTES = 64 << 10
PAGES_MAX = 1024
"""Pages of one file: an object of 1 GiB has 16 files."""
_BLOCK_BYTES = 4096
"""Unit in which file systems allocate. Pages begin at a block, so that no block is counted twice."""
_ENTRY = struct.Struct("<Q")
_PRESENT = 1 << 32


class PageFile:
    """The pages ``[first, first + PAGES_MAX)`` of an object; ``first`` is a multiple of ``PAGES_MAX``."""

    def __init__(self, path: Path, object_bytes: int, first: int) -> None:
        self._path = path
        self._object_bytes = object_bytes
        self._first = first
        self._count = min(PAGES_MAX, pages_of(object_bytes) - first)

    def read(self, pages: Iterable[int]) -> dict[int, bytes]:
        """Those of some pages that are there and whole, by number."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return {}
        try:
            table = os.pread(descriptor, self._count * _ENTRY.size, 0)
            found = {}
            for page in pages:
                entry = self._entry(table, page)
                if entry:
                    data = os.pread(descriptor, self._bytes_of(page), self._place(page))
                    if entry == _checked(data) and len(data) == self._bytes_of(page):
                        found[page] = data
            return found
        finally:
            os.close(descriptor)

    def missing(self, pages: Iterable[int]) -> list[int]:
        """Those of some pages that the table has no checksum of."""
        try:
            with self._path.open("rb", buffering=0) as file:
                table = file.read(self._count * _ENTRY.size)
        except FileNotFoundError:
            table = b""
        return [page for page in pages if not self._entry(table, page)]

    def needed_bytes(self, pages: Mapping[int, bytes]) -> int:
        """What storing pages takes on disk, with the table of a file that does not exist."""
        table = 0 if self._path.exists() else allocated(self._count * _ENTRY.size)
        return table + sum(map(allocated, map(len, pages.values()))) if pages else 0

    def write(self, pages: Mapping[int, bytes]) -> None:
        """Store pages; the file is created if need be. One process at a time."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            for page, data in pages.items():
                _write_all(descriptor, data, self._place(page))
                entry = _ENTRY.pack(_checked(data))
                _write_all(descriptor, entry, (page - self._first) * _ENTRY.size)
        finally:
            os.close(descriptor)

    def _entry(self, table: bytes, page: int) -> int:
        begin = (page - self._first) * _ENTRY.size
        entry = table[begin : begin + _ENTRY.size]
        return int.from_bytes(entry, "little") if len(entry) == _ENTRY.size else 0

    def _place(self, page: int) -> int:
        return allocated(self._count * _ENTRY.size) + (page - self._first) * PAGE_BYTES

    def _bytes_of(self, page: int) -> int:
        return min(PAGE_BYTES, self._object_bytes - page * PAGE_BYTES)


def pages_of(object_bytes: int) -> int:
    """Number of pages of an object."""
    return -(-object_bytes // PAGE_BYTES)


def allocated(size: int) -> int:
    """Bytes of the blocks that a number of bytes takes."""
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _checked(data: bytes) -> int:
    return _PRESENT | int(google_crc32c.value(data))


def _write_all(descriptor: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, place)
        place += written
        view = view[written:]
