"""RecordIO files; their layout is that of https://github.com/wangkuiyi/recordio (chunk.go, header.go)."""

from __future__ import annotations

import gzip
import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources, record_hash
from elasticdl.shared.data.formats import recordio
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.storage.tfrecord_frame import masked_crc

NONE, SNAPPY, GZIP = range(3)
PART_BYTES = 30
"""Small, so that chunks have several Snappy parts; the library's are 64 KiB."""


def snappy_part(data: bytes, *, compress: bool) -> bytes:
    body = struct.pack("<I", masked_crc(data)) + (pa.compress(data, "snappy", asbytes=True) if compress else data)
    return struct.pack("<I", (not compress) | len(body) << 8) + body


def snappy_stream(data: bytes) -> bytes:
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    head = b"\xff\x06\x00\x00sNaPpY"
    return head + b"".join(snappy_part(part, compress=place % 3 != 1) for place, part in enumerate(parts))


def chunk(records: list[bytes], compressor: int = NONE) -> bytes:
    data = b"".join(struct.pack("<I", len(record)) + record for record in records)
    if compressor != NONE:
        data = snappy_stream(data) if compressor == SNAPPY else gzip.compress(data)
    return struct.pack("<5I", 0x01020304, zlib.crc32(data), compressor, len(data), len(records)) + data


def planned(data: bytes) -> tuple[MemoryStore, PlannedData]:
    store = MemoryStore()
    store.write("memory://d/a.recordio", data)
    return store, plan_sources("memory://d", ReaderOptions(), store)


@given(
    chunks=st.lists(
        st.tuples(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.sampled_from([NONE, SNAPPY, GZIP])),
        min_size=1,
        max_size=6,
    ),
    cut=st.tuples(st.integers(0, 120), st.integers(0, 120)),
)
def test_ranges(chunks: list[tuple[list[bytes], int]], cut: tuple[int, int]) -> None:
    records = [record for some, _ in chunks for record in some]
    store, data = planned(b"".join(chunk(*each) for each in chunks))
    assert data.sources[0].records == len(records)
    assert len(data.indices[0].marks) == len(chunks) + 1
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    start, end = cut[0] % len(records), min(cut[1], len(records))
    if start < end:
        shard = Shard(source=0, start=start, end=end)
        batch = reader.read(shard).take(range(end - start))
        assert batch.records == records[start:end]
        expected = sum(record_hash(0, start + place, record) for place, record in enumerate(records[start:end]))
        assert batch.checksum == expected & ((1 << 64) - 1) == reader.checksum(shard)


FILE = chunk([b"one", b"two"]) + chunk([b"three", b""], SNAPPY)
SECOND = len(chunk([b"one", b"two"]))


@pytest.mark.parametrize("place", range(len(FILE)))
def test_a_flipped_bit_anywhere_is_noticed(place: int) -> None:
    data = bytearray(FILE)
    data[place] ^= 4
    record, at = (0, 0) if place < SECOND else (2, SECOND)
    with pytest.raises(UserError, match=rf"the chunk of record {record} \(from 0\) at byte {at} "):
        planned(bytes(data))


@pytest.mark.parametrize("size", [size for size in range(1, len(FILE)) if size != SECOND])
def test_truncation_at_every_byte(size: int) -> None:
    with pytest.raises(UserError, match=rf"at byte {0 if size < SECOND else SECOND} is incomplete"):
        planned(FILE[:size])


def test_the_layout_of_another_library_is_refused() -> None:
    # Magic number, number of records, CRC-32C, compressor from 1 on, size.
    data = struct.pack("<I", 3) + b"one"
    header = struct.pack("<5I", 0x01020304, 1, 0xDEADBEEF, 1, len(data))
    with pytest.raises(UserError, match="has a wrong header") as raised:
        planned(header + data)
    assert "convert other kinds to TFRecord" in str(raised.value.hint)


def test_records_have_no_columns() -> None:
    store = MemoryStore()
    store.write("memory://d/part-0", FILE)
    with pytest.raises(UserError, match="because RecordIO has no columns"):
        plan_sources("memory://d", ReaderOptions(columns=("a",)), store)
    assert plan_sources("memory://d", ReaderOptions(), store).schema.metadata.format == "recordio"


@given(
    records=st.lists(st.binary(max_size=300), min_size=1, max_size=60),
    compression=st.sampled_from(sorted(recordio.COMPRESSIONS)),
    chunk_bytes=st.sampled_from([1, 500, recordio.CHUNK_BYTES]),
    part_bytes=st.sampled_from([PART_BYTES, 64 << 10]),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], compression: str, chunk_bytes: int, part_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("written") / "a.recordio"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordio, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(recordio, "_PART_BYTES", part_bytes)
        assert recordio.write_records(path, records, compression) == len(records)
    store, data = planned(path.read_bytes())
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
    assert reader.read(Shard(source=0, start=0, end=len(records))).lines == records


def test_a_written_chunk_is_that_of_the_go_library() -> None:
    assert recordio._chunk([b"a", b"bc"], NONE) == chunk([b"a", b"bc"])
