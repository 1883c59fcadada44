"""TFRecord files; see ``elasticdl.shared.storage.tfrecord_frame`` for their format."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import google_crc32c
import numpy as np

from elasticdl.shared.data.formats.data_format import DataObject, PositionFormat, Scan
from elasticdl.shared.data.formats.gzip_content import content_size, open_content
from elasticdl.shared.data.formats.segments import Positions, Segment, check_unchanged, chunks
from elasticdl.shared.data.hashing import content_hashes
from elasticdl.shared.data.schema import ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.storage.tfrecord_frame import MASK_DELTA, frame, masked_crc

HEADER_BYTES = 12
FOOTER_BYTES = 4
_CHUNK_BYTES = 8 << 20
_LOOK_BYTES = 256 << 10
_KNOWN_HEADERS_MAX = 1 << 16
_GZIP = b"\x1f\x8b"


def write_records(path: str | Path, records: Iterable[bytes]) -> int:
    """Write a TFRecord file atomically."""
    count = 0
    with replacing(path) as file:
        for record in records:
            file.write(frame(record))
            count += 1
    return count


def _begins_with_record(data: bytes) -> bool:
    """Whether the first bytes of a file are a TFRecord header."""
    return len(data) >= HEADER_BYTES and masked_crc(data[:8]) == int.from_bytes(data[8:HEADER_BYTES], "little")


class FrameDecoder:
    """Splits consecutive bytes of one file into records and checks every checksum.

    Args:
        end: where the data ends: the size of the content, or the end of the range that is read; None: not known yet.
    """

    def __init__(self, uri: str, *, end: int | None, record: int = 0, position: int = 0) -> None:
        self._uri = uri
        self.end = end
        self._headers: dict[bytes, int] = {}  # headers with a valid checksum; lengths repeat
        self.record = record
        self.position = position
        self.needed_bytes = HEADER_BYTES
        """Bytes that the next record needs at least."""

    def decode(self, data: bytes) -> tuple[list[bytes], Positions]:
        """The whole records in ``data``, which begins at ``position``, and the byte offset of each.

        Raises:
            UserError: a checksum is wrong or a record reaches beyond the end of the data.
        """
        records: list[bytes] = []
        starts: list[int] = []
        known, size, at = self._headers, len(data), 0
        while at + HEADER_BYTES <= size:
            header = data[at : at + HEADER_BYTES]
            length = known.get(header, -1)
            if length < 0:
                length = self._length(header, len(starts), at)
            begin = at + HEADER_BYTES
            stop = begin + length
            if stop + FOOTER_BYTES > size:
                break
            starts.append(at)
            records.append(data[begin:stop])
            at = stop + FOOTER_BYTES
        positions = np.array(starts, dtype=np.int64)
        self._check(data, records, positions)
        self._advance(data, at, len(records))
        return records, positions + (self.position - at)

    def _length(self, header: bytes, ahead: int, at: int) -> int:
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
            compressed = header.startswith(_GZIP) and self.position + at == 0
            raise self._corrupt("its length", ahead, at, compressed=compressed)
        if len(self._headers) < _KNOWN_HEADERS_MAX:
            self._headers[header] = length
        return int(length)

    def _check(self, data: bytes, records: list[bytes], starts: Positions) -> None:
        if not records:
            return
        lengths = np.fromiter(map(len, records), dtype=np.int64, count=len(records))
        footers = starts + HEADER_BYTES + lengths
        raw = np.frombuffer(data, dtype=np.uint8)
        stored = raw[footers[:, None] + np.arange(FOOTER_BYTES)].view("<u4")[:, 0]
        crcs = np.fromiter(map(google_crc32c.value, records), dtype=np.uint32, count=len(records))
        masked = ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(MASK_DELTA)
        wrong = np.flatnonzero(masked != stored)
        if wrong.size:
            raise self._corrupt("its data", int(wrong[0]), int(starts[wrong[0]]))

    def _advance(self, data: bytes, at: int, records: int) -> None:
        """Advance behind the records; refuse a record that the rest of the data can't complete."""
        self.record += records
        self.position += at
        rest = data[at : at + HEADER_BYTES]
        self.needed_bytes = HEADER_BYTES
        if len(rest) == HEADER_BYTES:
            self.needed_bytes += self._length(rest, 0, 0) + FOOTER_BYTES
        if self.end is not None and self.position < self.end < self.position + self.needed_bytes:
            raise UserError(
                f"{display(self._uri)} is truncated: record {self.record} (from 0) at byte {self.position} needs "
                f"{self.needed_bytes} bytes, {self.end - self.position} are left",
                hint="Write the file again, or copy it again.",
            )

    def _corrupt(self, what: str, ahead: int, at: int, *, compressed: bool = False) -> UserError:
        if compressed:
            return UserError(
                f"{display(self._uri)} is compressed with gzip, but its name does not end with .gz",
                hint="Rename it.",
            )
        return UserError(
            f"{display(self._uri)} is corrupt: record {self.record + ahead} (from 0) at byte {self.position + at}: the "
            f"checksum of {what} is wrong",
            hint="Check that it is a TFRecord file, and write or copy it again.",
        )


class _Scan(Scan):
    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        self._store = store
        self._info = info

    def __iter__(self) -> Iterator[Segment]:
        uri, size = self._info.uri, content_size(self._info)
        decoder = FrameDecoder(uri, end=size)
        with open_content(self._store, uri) as stream:
            rest = b""
            for chunk, final in chunks(stream, lambda: max(_CHUNK_BYTES, decoder.needed_bytes)):
                data = rest + chunk if rest else chunk
                begin = decoder.position
                if final:
                    decoder.end = begin + len(data)
                records, positions = decoder.decode(data)
                rest = data[decoder.position - begin :]
                yield Segment(contents=content_hashes(records), positions=positions, end=decoder.position)
        check_unchanged(uri, size, decoder.position)

    def part(self, start: int, stop: int, begin: int | None) -> tuple[int, int, list[Segment]]:
        """The records that begin in a range. It is guessed that the first one begins where a header is right."""
        uri, size, etag = self._info.uri, self._info.size_bytes, self._info.etag
        if begin is None:
            begin = 0 if start == 0 else self._header_in(start, stop)
        decoder = FrameDecoder(uri, end=size, position=begin)
        segments = []
        while decoder.position < stop:
            at = decoder.position
            data = self._store.read(uri, at, max(min(_CHUNK_BYTES, stop - at), decoder.needed_bytes), etag=etag)
            records, positions = decoder.decode(data)
            segments.append(Segment(contents=content_hashes(records), positions=positions, end=decoder.position))
        return begin, decoder.position, segments

    def _header_in(self, start: int, stop: int) -> int:
        """The first place in a range that looks like a header; the end of the range if there is none."""
        for place in range(start, stop, _LOOK_BYTES):
            data = self._store.read(self._info.uri, place, _LOOK_BYTES + HEADER_BYTES, etag=self._info.etag)
            zeros = np.frombuffer(data, dtype=np.uint8) == 0
            # The length of a record, in 8 bytes, is below 4 GiB.
            likely = np.flatnonzero(zeros[4:-4] & zeros[5:-3] & zeros[6:-2] & zeros[7:-1])
            for offset in likely.tolist():
                if offset < _LOOK_BYTES and _begins_with_record(data[offset : offset + HEADER_BYTES]):
                    return min(place + int(offset), stop)
        return stop


class _TFRecord(PositionFormat):
    name = "tfrecord"
    title = "TFRecord"
    extensions = ("tfrecord", "tfrecords")
    has_columns = False
    is_divisible = True

    def begins(self, start: bytes) -> bool:
        return _begins_with_record(start)

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _Scan(store, data.info)

    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        return FrameDecoder(uri, end=position + len(data), record=record, position=position).decode(data)[0]


FORMAT = _TFRecord()
