"""Compressed files are read like their content, from any position."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import BinaryIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats import gzip_content
from elasticdl.shared.data.formats.gzip_content import GzipContent
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.storage.tfrecord_frame import frame

URI = "memory://data/a.csv.gz"
RECORDS = 5000
CSV = b"number,text\n" + b"".join(b"%d,%x\n" % (number, number**3) for number in range(RECORDS))
TFRECORD = b"".join(frame(random.Random(number).randbytes(number % 97)) for number in range(RECORDS))


def stored(data: bytes, uri: str = URI) -> MemoryStore:
    store = MemoryStore()
    store.write(uri, data)
    return store


def planned(data: bytes, name: str) -> tuple[Reader, PlannedData]:
    store = stored(data, f"memory://data/{name}")
    plan = plan_sources("memory://data", ReaderOptions(), store)
    return Reader(store=store, sources=plan.sources, schema=plan.schema, index=plan.indices.__getitem__), plan


@given(
    members=st.lists(st.integers(0, 300_000), min_size=1, max_size=4),
    padding=st.sampled_from([0, 512]),
    distance=st.integers(1000, 200_000),
    reads=st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 100_000)), min_size=1, max_size=10),
)
@example(members=[1642, 9380, 116048, 0], padding=512, distance=1000, reads=[(27071, 100000)])
@example(members=[40_000, 40_000], padding=100_000, distance=1000, reads=[(39_000, 5000), (79_000, 5000)])
def test_any_range_of_the_content_is_read_in_any_order(
    members: list[int], padding: int, distance: int, reads: list[tuple[int, int]]
) -> None:
    random_bytes = random.Random(sum(members)).randbytes
    parts = [random_bytes(size // 2) + bytes(size - size // 2) for size in members]
    content = GzipContent(stored((b"\0" * padding).join(map(gzip.compress, parts))), distance_bytes=distance)
    whole = b"".join(parts)
    for start, length in reads:
        assert content.read(URI, start, length) == whole[start : start + length]


def test_reads_begin_near_their_position_with_a_bounded_number_of_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_content, "FILE_STATES_MAX", 8)
    data = random.Random(1).randbytes(4 << 20)
    starts: list[int] = []

    class Counting(MemoryStore):
        def open(self, uri: str, start: int = 0) -> BinaryIO:
            starts.append(start)
            return super().open(uri, start)

    store = Counting()
    store.write(URI, gzip.compress(data))
    content = GzipContent(store, distance_bytes=64 << 10)
    assert content.read(URI, len(data) - 10, 10) == data[-10:]
    assert content.read(URI, 3 << 20, 10) == data[3 << 20 : (3 << 20) + 10]
    # Eight states at most leave at least a quarter of the file between them.
    assert starts[0] == 0
    assert 2 << 20 < starts[1] <= 3 << 20


@pytest.mark.parametrize(("name", "data"), [("a.csv", CSV), ("a.tfrecord", TFRECORD)])
def test_compressed_files_have_the_records_and_checksums_of_their_content(name: str, data: bytes) -> None:
    plain, plain_plan = planned(data, name)
    reader, plan = planned(gzip.compress(data), f"{name}.gz")
    assert plan.sources[0].records == RECORDS
    assert plan.indices[0].total == plain_plan.indices[0].total
    assert plan.schema == plain_plan.schema
    for start, end in ((0, 10), (4000, 4512), (300, 301), (0, RECORDS)):
        shard = Shard(source=0, start=start, end=end)
        one, other = reader.read(shard).take(range(end - start)), plain.read(shard).take(range(end - start))
        assert one.checksum == other.checksum == reader.checksum(shard)
        assert one.records == other.records


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tfrecord.gz", "part-0.gz"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[: len(data) // 2], lambda data: b"no gzip" + data]
)
def test_damaged_files_are_named(name: str, damage: Callable[[bytes], bytes]) -> None:
    content = TFRECORD if "tfrecord" in name else CSV
    with pytest.raises(UserError, match=f"{name} is not a complete gzip file"):
        planned(damage(gzip.compress(content)), name)


@pytest.mark.parametrize(("name", "data"), [("a.csv", CSV), ("a.tfrecord", TFRECORD)])
def test_a_compressed_file_without_its_extension_is_named(name: str, data: bytes) -> None:
    with pytest.raises(UserError, match=r"is compressed with gzip, but its name does not end with \.gz"):
        planned(gzip.compress(data), name)
