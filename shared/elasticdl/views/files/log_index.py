"""The index at the end of an exported log: where its blocks of records begin, and what was found in them.

That is which tasks they are about, core snapshots at their ends, and where the wall time went. With it a reader starts
near the record that it looks for, and does not fold what is before. The index only saves time: a file without one, or
with one that can't be read, is read from its beginning.

The index is the last gzip stream of the file with content, one JSON object. After it comes an empty gzip stream of
fixed size, whose header holds the place of the index.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import struct
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol

import elasticdl.shared.messages
import elasticdl.views.wall_time
from elasticdl.master.core.fold import Fold
from elasticdl.shared.messages.events import LogRecord
from elasticdl.views import core_snapshot, points
from elasticdl.views.files.mentions import Mentions
from elasticdl.views.wall_time.fold import WallTimeFold
from elasticdl.views.wall_time.values import WallTime, wall_time_of_plain, wall_time_to_plain

BLOCK_RECORDS = 1 << 14
"""Records in a block: they are decoded and folded in a fifth of a second."""
INDEX_BYTES_MAX = 1 << 28
_TAIL = struct.Struct("<10sH2sHQ2sII")
_TAIL_HEAD = (b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff", 12, b"ED", 8)
"""Header of a gzip stream with one extra field, of eight bytes."""
_TAIL_BODY = (b"\x03\x00", 0, 0)
"""Nothing, compressed, with its checksum and length."""
TAIL_BYTES = _TAIL.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive records, compressed by themselves.

    Attributes:
        first: number of its first record.
        place: where it begins in the file, in bytes.
        mentions: the tasks that it may be about.
    """

    first: int
    place: int
    mentions: Mentions


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndex:
    """See the module.

    Attributes:
        blocks: in their order.
        snapshots: number of the last record that a core snapshot has seen -> the snapshot, in ascending order.
        wall_time: where the time went, as JSON values, and the ``program`` that has found it.
    """

    blocks: Sequence[Block] = ()
    snapshots: Sequence[tuple[int, bytes]] = ()
    wall_time: tuple[Any, str] = (None, "")

    def block_of(self, seq: int) -> Block | None:
        """The block of a record; None without blocks, or before the first one."""
        place = bisect_right(self.blocks, seq, key=lambda each: each.first)
        return self.blocks[place - 1] if place else None

    def snapshot_before(self, until: int) -> bytes | None:
        """The last core snapshot of no later record than this one; 0: the last one."""
        place = bisect_right(self.snapshots, until, key=lambda each: each[0]) if until else len(self.snapshots)
        return self.snapshots[place - 1][1] if place else None

    def known_wall_time(self) -> WallTime | None:
        """Where the time went, if this version of the program has found it."""
        found, its_program = self.wall_time
        if found is None or its_program != program():
            return None
        try:
            return wall_time_of_plain(found)
        except (ValueError, LookupError, TypeError, AttributeError):
            return None

    def to_bytes(self) -> bytes:
        """The index as one JSON object."""
        values = {
            "blocks": [(each.first, each.place) for each in self.blocks],
            "mentions": [each.mentions.to_plain() for each in self.blocks],
            "snapshots": [(seq, base64.b64encode(data).decode()) for seq, data in self.snapshots],
            "wall_time": self.wall_time,
        }
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def of_file(cls, file: IO[bytes]) -> LogIndex:
        """The index of an open file; an empty one if it has none that can be read."""
        size_bytes = file.seek(0, io.SEEK_END)
        if size_bytes <= TAIL_BYTES:
            return cls()
        file.seek(size_bytes - TAIL_BYTES)
        *head, place, code, checksum, length = _TAIL.unpack(file.read(TAIL_BYTES))
        if tuple(head) != _TAIL_HEAD or (code, checksum, length) != _TAIL_BODY or place >= size_bytes:
            return cls()
        file.seek(place)
        try:
            with gzip.GzipFile(fileobj=file) as packed:
                values = json.loads(packed.read(INDEX_BYTES_MAX))
            places = [(int(first), int(place)) for first, place in values["blocks"]]
            mentions = map(Mentions.of_plain, values.get("mentions", [None] * len(places)))
            found, program = values.get("wall_time", (None, ""))
            return cls(
                blocks=[
                    Block(first=first, place=place, mentions=each)
                    for (first, place), each in zip(places, mentions, strict=True)
                ],
                snapshots=[(int(seq), base64.b64decode(data)) for seq, data in values["snapshots"]],
                wall_time=(found, str(program)),
            )
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError):
            return cls()


@cache
def program() -> str:
    """Digest of the code that says where the time of a log went."""
    digest = hashlib.blake2b(digest_size=16)
    packages = (elasticdl.views.wall_time, elasticdl.shared.messages)
    folders = [Path(folder) for package in packages for folder in package.__path__]
    files = [Path(points.__file__), *(path for folder in folders for path in sorted(folder.rglob("*.py")))]
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tail(place: int) -> bytes:
    """The end of a file whose index begins at ``place``."""
    return _TAIL.pack(*_TAIL_HEAD, place, *_TAIL_BODY)


class SnapshotSource(Protocol):
    """Where the core snapshots of a file come from."""

    def take(self, record: LogRecord) -> None:
        """Take the next record, as it stands in the file."""
        ...

    def finish(self) -> list[tuple[int, bytes]]:
        """All of them, each with the number of the last record that it has seen."""
        ...


class Snapshots:
    """Folds the records of a file, and makes its core snapshots at the beginnings of blocks and at its end."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._found: list[tuple[int, bytes]] = []
        self._last = 0

    def take(self, record: LogRecord) -> None:
        """See ``SnapshotSource``."""
        if not (record.seq - 1) % BLOCK_RECORDS:
            last, data = self._found[-1] if self._found else (0, b"")
            if len(data) <= (self._last - last) * core_snapshot.BYTES_PER_RECORD:
                self._add()
        self._last = record.seq
        self._fold.take(record)

    def finish(self) -> list[tuple[int, bytes]]:
        """See ``SnapshotSource``."""
        self._fold.finish()
        self._add()
        return self._found

    def _add(self) -> None:
        """The fold holds a few records back, and readers take them once more: see ``Fold``."""
        state = self._fold.state
        if self._last and state.seq and state.spec is not None and not state.unreadable_messages.count:
            self._found.append((self._last, core_snapshot.encode(state)))


class Indexing:
    """Makes the index while the records of a file are written.

    Attributes:
        blocks: those that were begun.
    """

    def __init__(self, snapshots: SnapshotSource | None = None) -> None:
        self.blocks: list[Block] = []
        self._snapshots = snapshots or Snapshots()
        self._wall_time = WallTimeFold()
        self._mentions = Mentions()

    def begin_block(self, first: int, place: int) -> int:
        """Note a block; returns the number of the first record of the next one."""
        self._mentions.close()
        self._mentions = Mentions()
        self.blocks.append(Block(first=first, place=place, mentions=self._mentions))
        return first + BLOCK_RECORDS

    def take(self, record: LogRecord) -> None:
        """Take the next record, as it stands in the file."""
        self._snapshots.take(record)
        self._wall_time.take(record)
        self._mentions.take(record.envelope.event)

    def finish(self) -> LogIndex:
        """The index of the file."""
        self._mentions.close()
        found = wall_time_to_plain(self._wall_time.result())
        return LogIndex(blocks=self.blocks, snapshots=self._snapshots.finish(), wall_time=(found, program()))
