"""RecordIO files, as the Go library ``wangkuiyi/recordio`` writes them: chunks of records.

    magic number, CRC-32 of the stored bytes, compressor, number of stored bytes, number of records (4 bytes each,
    little-endian); stored bytes

Without compression these are the records, each after its length in 4 bytes. Only whole chunks can be decompressed, so
the index has its marks at chunks.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from elasticdl.shared.data.formats.data_format import DataObject, PositionFormat, Scan
from elasticdl.shared.data.formats.gzip_content import content_size, open_content
from elasticdl.shared.data.formats.segments import Segment, check_unchanged
from elasticdl.shared.data.hashing import content_hashes
from elasticdl.shared.data.schema import ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.sources import RECORDS_MAX
from elasticdl.shared.storage import ObjectInfo, ObjectStore, display
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.storage.tfrecord_frame import masked_crc

_MAGIC = b"\x04\x03\x02\x01"
HEADER = struct.Struct("<5I")
"""Magic number, checksum, compressor, stored bytes, records."""
_LENGTH = struct.Struct("<I")
_NONE, _SNAPPY, _GZIP = range(3)
COMPRESSIONS = {"none": _NONE, "snappy": _SNAPPY, "gzip": _GZIP}
CHUNK_BYTES = 1 << 20
"""Bytes of records in a written chunk, at least. A worker reads whole chunks; the Go library writes 32 MiB."""
_STREAM_START = b"\xff\x06\x00\x00sNaPpY"
_PART_BYTES = 64 << 10
"""Content of a part in Snappy's framing format, at most."""
_COMPRESSED_PART, _PLAIN_PART, _FIRST_SKIPPABLE_PART = 0x00, 0x01, 0x80
"""Kinds of the parts of Snappy's framing format."""


def write_records(path: str | Path, records: Iterable[bytes], compression: str = "snappy") -> int:
    """Write a RecordIO file atomically."""
    count, size = 0, 0
    some: list[bytes] = []
    with replacing(path) as file:
        for record in records:
            some.append(record)
            size += _LENGTH.size + len(record)
            if size >= CHUNK_BYTES:
                file.write(_chunk(some, COMPRESSIONS[compression]))
                count, size = count + len(some), 0
                some.clear()
        if some:
            file.write(_chunk(some, COMPRESSIONS[compression]))
    return count + len(some)


def _chunk(records: list[bytes], compressor: int) -> bytes:
    data = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    if compressor == _SNAPPY:
        data = b"".join([_STREAM_START, *_compressed_parts(data)])
    elif compressor == _GZIP:
        data = gzip.compress(data, mtime=0)
    return HEADER.pack(int.from_bytes(_MAGIC, "little"), zlib.crc32(data), compressor, len(data), len(records)) + data


def _compressed_parts(data: bytes) -> Iterator[bytes]:
    """Snappy's framing format; see ``_snappy_parts``."""
    codec = pa.Codec("snappy")
    for at in range(0, len(data), _PART_BYTES):
        part = data[at : at + _PART_BYTES]
        body = _LENGTH.pack(masked_crc(part)) + codec.compress(part, asbytes=True)
        yield _LENGTH.pack(_COMPRESSED_PART | len(body) << 8) + body


class ChunkDecoder:
    """Reads consecutive chunks of one file and checks every checksum."""

    def __init__(self, uri: str, *, record: int = 0, position: int = 0) -> None:
        self._uri = uri
        self.record = record
        self.position = position

    def chunks(self, stream: IO[bytes]) -> Iterator[list[bytes]]:
        """The records of each chunk, up to the end of the stream.

        Raises:
            UserError: a chunk is damaged or incomplete; names its first record and its position.
        """
        while header := _exactly(stream, HEADER.size):
            if len(header) < HEADER.size:
                raise self._wrong("is incomplete")
            magic, checksum, compressor, size, count = HEADER.unpack(header)
            if _LENGTH.pack(magic) != _MAGIC or compressor > _GZIP:
                raise self._wrong("has a wrong header")
            stored = _exactly(stream, size)
            if len(stored) < size:
                raise self._wrong("is incomplete")
            if zlib.crc32(stored) != checksum:
                raise self._wrong("has a wrong checksum")
            try:
                records = _records(_decompressed(stored, compressor), count)
            except (struct.error, ValueError, EOFError, zlib.error, OSError, pa.ArrowException) as error:
                raise self._wrong(f"can't be decoded: {error}") from error
            yield records
            self.record += count
            self.position += HEADER.size + size

    def _wrong(self, what: str) -> UserError:
        return UserError(
            f"{display(self._uri)}: the chunk of record {self.record} (from 0) at byte {self.position} {what}",
            hint="Copy the file again. Only RecordIO of the Go library is read: convert other kinds to TFRecord.",
        )


class _Scan(Scan):
    """Every record of a file in order. A record's position is that of its chunk."""

    def __init__(self, store: ObjectStore, info: ObjectInfo) -> None:
        self._store = store
        self._info = info

    def __iter__(self) -> Iterator[Segment]:
        decoder = ChunkDecoder(self._info.uri)
        with open_content(self._store, self._info.uri) as stream:
            for records in decoder.chunks(stream):
                end = decoder.position + HEADER.size
                positions = np.full(len(records), decoder.position, dtype=np.int64)
                yield Segment(contents=content_hashes(records), positions=positions, end=end)
        yield Segment(contents=content_hashes([]), positions=np.empty(0, np.int64), end=decoder.position)
        check_unchanged(self._info.uri, content_size(self._info), decoder.position)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    """Read ``size`` bytes, fewer at the end of the stream."""
    data = stream.read(size)
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


def _records(data: bytes, count: int) -> list[bytes]:
    records, at = [], 0
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        if at > len(data):
            raise ValueError("a record is longer than its chunk")
        records.append(data[at - length : at])
    if at != len(data):
        raise ValueError("it has more bytes than records")
    return records


def _decompressed(stored: bytes, compressor: int) -> bytes:
    if compressor == _SNAPPY:
        return b"".join(_snappy_parts(stored))
    return gzip.decompress(stored) if compressor == _GZIP else stored


def _snappy_parts(stored: bytes) -> Iterator[bytes]:
    """The parts of Snappy's framing format: kind (1 byte), length (3 bytes), and with data its masked CRC-32C."""
    codec, at = pa.Codec("snappy"), 0
    while at < len(stored):
        (word,) = _LENGTH.unpack_from(stored, at)
        kind, begin = word & 0xFF, at + _LENGTH.size
        at = begin + (word >> 8)
        if at > len(stored):
            raise ValueError("a Snappy part is incomplete")
        if kind not in (_COMPRESSED_PART, _PLAIN_PART):
            if kind < _FIRST_SKIPPABLE_PART:
                raise ValueError(f"Snappy part of unknown kind {kind}")
            continue
        (checksum,) = _LENGTH.unpack_from(stored, begin)
        data = stored[begin + _LENGTH.size : at]
        if kind == _COMPRESSED_PART:
            data = codec.decompress(data, _snappy_size(data), asbytes=True)
        if masked_crc(data) != checksum:
            raise ValueError("a Snappy part has a wrong checksum")
        yield data


def _snappy_size(data: bytes) -> int:
    """The size of a Snappy block's content, which is at its beginning, 7 bits in each byte."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    raise ValueError("a Snappy part has no size")


class _RecordIO(PositionFormat):
    name = "recordio"
    title = "RecordIO"
    extensions = ("recordio",)
    has_columns = False
    position_shift = 0
    stride = RECORDS_MAX

    def begins(self, start: bytes) -> bool:
        return start.startswith(_MAGIC)

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _Scan(store, data.info)

    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        chunks = ChunkDecoder(uri, record=record, position=position).chunks(io.BytesIO(data))
        return [each for chunk in chunks for each in chunk]


FORMAT = _RecordIO()
