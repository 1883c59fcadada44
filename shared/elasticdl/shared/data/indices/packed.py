"""The indices of a data set in one file: compressed blocks, then a directory of them.

A block has the indices of at most 256 consecutive sources and some 64 KiB; a larger index is a block of its own. So the
index of one source is a read of one block, and writing takes the memory of one block.

What was found in the columns of each block's sources may follow the last block. Workers do not read it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import struct
import tempfile
import threading
import weakref
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from elasticdl.shared.data.column_types import FoundColumn, FoundSource
from elasticdl.shared.data.index import ScannedSource, SourceIndex
from elasticdl.shared.data.indices import columns
from elasticdl.shared.data.indices.block import Block, to_bytes
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.compression import decompressed_object

_SOURCES_MAX = 256
_BYTES_MAX = 64 << 10
_MARK_BYTES = 24
_MAGIC = b"EDLINDEX"
_TAIL = struct.Struct("<QQ8s")
"""Bytes of the directory's places, bytes of its text, and the magic number."""
_FIRST_READ_BYTES = 64 << 10
"""Read from the end of a file for its directory; that of a million files has some 70 KB."""
_KEPT_BYTES = 32 << 20
_KEPT_BLOCKS = 16
"""Blocks that are kept in any case: large files have an index of megabytes, and tasks take turns in them."""
_COLUMNS = "columns"
"""Fact: where the columns of each block begin, and the end of the last ones."""
DAMAGE = (zlib.error, struct.error, ValueError, KeyError, TypeError, IndexError)
"""Errors of zlib, JSON, numpy and Python for a damaged file."""


class IndexLostError(PermanentError):
    """Indices were not saved, or can't be read any more; ``elasticdl resume`` builds them again."""


class PackedIndices(Sequence[SourceIndex]):
    """The indices of a data set; any thread may call.

    Keeps blocks of at most 32 MiB as they are encoded, which take two to three times as much memory, or 16 blocks if
    these are larger.

    Args:
        read: returns bytes of the file: from a position on, and how many at most; raises errors of the storage.

    Raises:
        IndexLostError: the file is damaged.
    """

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int, name: str) -> None:
        self._read = read
        self._name = name
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._kept_bytes = 0
        try:
            self._open(size_bytes)
        except DAMAGE as error:
            raise IndexLostError(f"{name} is damaged") from error

    def _open(self, size_bytes: int) -> None:
        begin = max(0, size_bytes - _FIRST_READ_BYTES)
        end = self._read(begin, size_bytes - begin)
        places, text, magic = _TAIL.unpack(end[-_TAIL.size :])
        length = places + text + _TAIL.size
        if magic != _MAGIC or length > size_bytes:
            raise ValueError(magic)
        if length > len(end):
            end = self._read(size_bytes - length, length)
        end = end[len(end) - length :]
        facts: dict[str, Any] = json.loads(decompressed_object(end[places : places + text]))
        directory = np.frombuffer(decompressed_object(end[:places]), dtype="<i8").reshape(2, -1)
        self.facts: Mapping[str, Any] = facts
        """What was recorded with the indices."""
        self._firsts: list[int] = directory[0].tolist()
        """Number of the first source of each block, and behind the last one."""
        self._places: list[int] = directory[1].tolist()
        """Where each block begins, and the end of the last one."""

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return tuple(self[each] for each in range(*number.indices(len(self))))
        number = range(len(self))[number]
        place = bisect_right(self._firsts, number) - 1
        block = self._block(place)
        return block[number - self._firsts[place]]

    def __iter__(self) -> Iterator[SourceIndex]:
        for place in range(len(self._places) - 1):
            yield from self._decoded(place)

    def check(self) -> None:
        """Read all blocks."""
        for place in range(len(self._places) - 1):
            self._decoded(place)

    def scanned(self) -> Iterator[ScannedSource]:
        """All sources as their scans described them, in order."""
        places = self.facts.get(_COLUMNS, ())
        if len(places) != len(self._places):
            raise IndexLostError(f"{self._name} does not describe the columns of its files")
        for place, (begin, end) in enumerate(itertools.pairwise(places)):
            block = self._decoded(place)
            try:
                found = list(columns.columns_of(self._read(begin, end - begin)))
                if len(found) != len(block):
                    raise ValueError(len(found))
            except DAMAGE as error:
                raise IndexLostError(f"{self._name} is damaged") from error
            for index, each in zip(block, found, strict=True):
                source = FoundSource(uri=index.source.uri, records=index.source.records, columns=each)
                yield ScannedSource(index=index, found=source)

    def _block(self, place: int) -> Block:
        with self._lock:
            if block := self._blocks.get(place):
                self._blocks.move_to_end(place)
                return block
        block = self._decoded(place)
        with self._lock:
            if place not in self._blocks:
                self._blocks[place] = block
                self._kept_bytes += block.size_bytes
            while self._kept_bytes > _KEPT_BYTES and len(self._blocks) > _KEPT_BLOCKS:
                self._kept_bytes -= self._blocks.popitem(last=False)[1].size_bytes
        return block

    def _decoded(self, place: int) -> Block:
        begin, end = self._places[place : place + 2]
        try:
            block = Block(self._read(begin, end - begin))
            if (block.first, len(block)) != (self._firsts[place], self._firsts[place + 1] - self._firsts[place]):
                raise ValueError(block.first)
        except DAMAGE as error:
            raise IndexLostError(f"{self._name} is damaged") from error
        return block


class IndexFile(PackedIndices):
    """Indices in a temporary file, which has no name: it is gone with the process, however that ends.

    Args:
        descriptor: of the file; is closed with this.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        size_bytes = os.fstat(descriptor).st_size
        super().__init__(lambda begin, length: os.pread(descriptor, length, begin), size_bytes, "the index of the data")

    @property
    def path(self) -> Path:
        """Under which this process can read the file."""
        return Path(f"/proc/self/fd/{self._descriptor}")


class IndexWriter:
    """Writes indices to a temporary file; leaving its context drops it, unless ``finish`` was called."""

    def __init__(self, *, has_columns: bool = False) -> None:
        with _writing():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
            self._columns_file = tempfile.TemporaryFile() if has_columns else None  # noqa: SIM115
        self._waiting: list[SourceIndex] = []
        self._waiting_bytes = 0
        self._columns: list[tuple[FoundColumn, ...]] = []
        self._columns_bytes: list[int] = []
        self._firsts = [0]
        self._places = [0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # It writes what a full disk did not take before.
            self._file.close()
            if self._columns_file is not None:
                self._columns_file.close()

    def add(self, index: SourceIndex, found: tuple[FoundColumn, ...] = ()) -> None:
        """Add the index of the next source. Raises ``PermanentError``: the disk of temporary files is full."""
        size = _MARK_BYTES * len(index.marks) + sum(map(len, index.files))
        if self._waiting and (len(self._waiting) >= _SOURCES_MAX or self._waiting_bytes + size > _BYTES_MAX):
            self._write_block()
        self._waiting.append(index)
        self._columns.append(found)
        self._waiting_bytes += size

    def finish(self, facts: Mapping[str, Any] | None = None) -> IndexFile:
        """The indices, to be read."""
        if self._waiting:
            self._write_block()
        facts = dict(facts or {})
        if self._columns_file is not None:
            ends = itertools.accumulate(self._columns_bytes, initial=self._places[-1])
            facts[_COLUMNS] = list(ends)
            with _writing():
                self._columns_file.seek(0)
                shutil.copyfileobj(self._columns_file, self._file)
        places = zlib.compress(np.array([self._firsts, self._places], dtype="<i8").tobytes())
        text = zlib.compress(json.dumps(facts).encode())
        with _writing():
            self._file.write(places + text + _TAIL.pack(len(places), len(text), _MAGIC))
            self._file.flush()
        return IndexFile(os.dup(self._file.fileno()))

    def _write_block(self) -> None:
        data = to_bytes(self._waiting)
        with _writing():
            self._file.write(data)
        self._firsts.append(self._firsts[-1] + len(self._waiting))
        self._places.append(self._places[-1] + len(data))
        if self._columns_file is not None:
            found = columns.to_bytes(self._columns)
            with _writing():
                self._columns_file.write(found)
            self._columns_bytes.append(len(found))
        self._waiting.clear()
        self._columns.clear()
        self._waiting_bytes = 0


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PermanentError(
            f"the index of the data can't be written to {tempfile.gettempdir()}: {error.strerror}. "
            "Free space there, or set TMPDIR to another folder."
        ) from error


def pack(indices: Iterable[SourceIndex], facts: Mapping[str, Any] | None = None) -> IndexFile:
    """Indices of the sources 0, 1, ... in a temporary file; one is taken after the other."""
    with IndexWriter() as writer:
        for index in indices:
            writer.add(index)
        return writer.finish(facts)
