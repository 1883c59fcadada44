"""Any split of a source into ranges gives the records and the checksums of a whole read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import (
    PlannedData,
    Reader,
    ReaderOptions,
    discover,
    plan_sources,
    record_hash,
    scan_source,
)
from elasticdl.shared.data.formats.parquet import PAGE_ROWS
from elasticdl.shared.data.indices.block import Block, to_bytes
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore, ObjectInfo
from elasticdl.shared.storage.tfrecord_frame import frame

OPTIONS = ReaderOptions()
MASK64 = (1 << 64) - 1


def reader_of(store: MemoryStore, planned: PlannedData) -> Reader:
    return Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)


def planned_with(**objects: bytes) -> tuple[MemoryStore, PlannedData]:
    store = MemoryStore()
    for name, data in objects.items():
        store.write(f"memory://data/{name.replace('_', '.')}", data)
    return store, plan_sources("memory://data", OPTIONS, store)


def csv_bytes(rows: Sequence[Sequence[str]], line_break: str = "\n", *, last_break: bool = True) -> bytes:
    def quoted(value: str) -> str:
        return '"' + value.replace('"', '""') + '"' if any(char in value for char in '",\r\n') else value

    text = line_break.join(",".join(map(quoted, row)) for row in rows)
    return (text + (line_break if last_break else "")).encode()


ranges = st.tuples(st.integers(0, 2000), st.integers(0, 2000)).map(sorted)


@given(
    records=st.lists(st.binary(max_size=30), min_size=1, max_size=40),
    copies=st.integers(1, 40),
    cuts=st.lists(ranges, min_size=1, max_size=4),
)
def test_tfrecord_ranges(records: list[bytes], copies: int, cuts: list[list[int]]) -> None:
    records = records * copies
    store, planned = planned_with(a_tfrecord=frame(b"x"), b_tfrecord=b"".join(map(frame, records)))
    assert [source.records for source in planned.sources] == [1, len(records)]
    reader = reader_of(store, planned)
    expected = [record_hash(1, number, raw) for number, raw in enumerate(records)]
    assert planned.indices[1].total == sum(expected) & MASK64
    for first, last in cuts:
        start, end = first % len(records), min(last, len(records))
        if start < end:
            shard = Shard(source=1, start=start, end=end)
            batch = reader.read(shard).take(range(end - start))
            assert batch.records == records[start:end]
            assert batch.columns == {}
            assert batch.checksum == sum(expected[start:end]) & MASK64 == reader.checksum(shard)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@given(
    rows=st.lists(st.tuples(cells, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30),
    copies=st.integers(1, 30),
    line_break=st.sampled_from(["\n", "\r\n"]),
    last_break=st.booleans(),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    cuts=st.lists(ranges, min_size=1, max_size=4),
)
def test_csv_ranges(
    rows: list[tuple[str, int]], copies: int, line_break: str, last_break: bool, mark: bytes, cuts: list[list[int]]
) -> None:
    rows = [("text", 0), *rows] * copies  # the first word makes the column text whatever follows
    data = csv_bytes(
        [("word", "number"), *((word, str(number)) for word, number in rows)], line_break, last_break=last_break
    )
    store, planned = planned_with(a_csv=mark + data)
    assert planned.sources[0].records == len(rows)
    assert planned.schema.metadata.column_names == ("word", "number")
    assert planned.schema.metadata.column_types == ("string", "int64")
    reader = reader_of(store, planned)
    for first, last in cuts:
        start, end = first % len(rows), min(last, len(rows))
        if start < end:
            shard = Shard(source=0, start=start, end=end)
            block = reader.read(shard)
            batch = block.take(range(end - start)[::-1])
            assert batch.columns["word"].tolist() == [word for word, _ in rows[start:end]][::-1]
            assert batch.columns["number"].tolist() == [number for _, number in rows[start:end]][::-1]
            assert isinstance(batch.records, list)
            expected = [record_hash(0, start + n, raw) for n, raw in enumerate(batch.records[::-1])]
            assert batch.checksum == sum(expected) & MASK64 == reader.checksum(shard)


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=300),
    group=st.integers(1, 100),
    cut=ranges,
)
def test_parquet_ranges(values: list[int | None], group: int, cut: list[int]) -> None:
    words = [None if value is None else str(value) for value in values]
    table = pa.table({"number": pa.array(values, pa.int32()), "word": pa.array(words, pa.string())})
    store = MemoryStore()
    store.write("memory://data/a.parquet", parquet_bytes(table, group))
    planned = plan_sources("memory://data", ReaderOptions(fill_missing={"number": "-7"}), store)
    reader = reader_of(store, planned)
    start, end = cut[0] % len(values), min(cut[1], len(values))
    whole = reader.read(Shard(source=0, start=0, end=len(values)))
    assert reader.index(0).total == whole.take(range(len(values))).checksum
    if start < end:
        shard = Shard(source=0, start=start, end=end)
        batch = reader.read(shard).take(range(end - start))
        assert batch.columns["word"].tolist() == [word or "" for word in words[start:end]]
        numbers = batch.columns["number"]
        assert isinstance(numbers, np.ndarray)
        assert numbers.tolist() == [-7 if value is None else value for value in values[start:end]]
        assert numbers.dtype == "int32"
        assert batch.checksum == reader.checksum(shard) == whole.take(range(start, end)).checksum


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 26), (PAGE_ROWS - 26, PAGE_ROWS), (PAGE_ROWS - 1, PAGE_ROWS + 1), (5, PAGE_ROWS + 5), (2 * PAGE_ROWS, 9000)],
)
def test_parquet_ranges_within_pages_and_across_them(start: int, end: int) -> None:
    numbers = np.arange(9000)
    lists = [[number] * (number % 3) for number in range(9000)]
    table = pa.table({"a": numbers, "b": lists, "c": numbers.astype(str)})
    store, planned = planned_with(a_parquet=parquet_bytes(table, 3000))
    reader, whole = reader_of(store, planned), reader_of(store, planned)
    every = whole.read(Shard(source=0, start=0, end=9000))
    block = reader.read(Shard(source=0, start=start, end=end))
    assert block.hashes.tolist() == every.hashes[start:end].tolist()
    order = np.random.default_rng(1).permutation(end - start)
    for rows, places in ((block, range(start, end)), (block.take(order), start + order)):
        columns = rows.columns
        assert columns["a"].tolist() == list(places)
        assert columns["b"].tolist() == [lists[place] for place in places]
        assert columns["c"].tolist() == [str(place) for place in places]


def test_pages_count_their_strings_and_lists() -> None:
    table = pa.table({"a": np.arange(100), "b": [[1.0] * 3] * 100, "c": ["word"] * 100})
    store, planned = planned_with(a_parquet=parquet_bytes(table))
    columns = reader_of(store, planned).read(Shard(source=0, start=0, end=100)).columns
    assert columns.nbytes >= 100 * (8 + 3 * 8 + 64)


def parquet_bytes(table: pa.Table, group: int = 1 << 20, **options: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group, **options)
    return file.getvalue()


def test_parquet_hashes_do_not_depend_on_the_encoding() -> None:
    table = pa.table({"a": [1.5, float("nan"), None, -0.0], "b": ["x", "", None, "x"], "c": [True, False, True, True]})
    plain = planned_with(a_parquet=parquet_bytes(table, compression="none", use_dictionary=False))[1]
    packed = planned_with(a_parquet=parquet_bytes(table, 2, compression="zstd"))[1]
    category = table.set_column(1, "b", table["b"].dictionary_encode())
    assert plain.indices[0].total == packed.indices[0].total
    assert plain.indices[0].total == planned_with(a_parquet=parquet_bytes(category))[1].indices[0].total


@pytest.mark.parametrize(
    "other",
    [
        {"a": [1, 2], "b": ["x", ""]},
        {"a": [2, 1], "b": ["x", "y"]},
        {"a": [1, 2], "b": ["x", None]},
        {"a": [1, 3], "b": ["x", "y"]},
    ],
)
def test_parquet_hashes_differ_when_a_value_does(other: dict[str, list[object]]) -> None:
    one = planned_with(a_parquet=parquet_bytes(pa.table({"a": [1, 2], "b": ["x", "y"]})))[1]
    assert one.indices[0].total != planned_with(a_parquet=parquet_bytes(pa.table(other)))[1].indices[0].total


def test_equal_records_at_other_places_have_other_hashes() -> None:
    hashes = {record_hash(source, number, b"x") for source in range(10) for number in range(10)}
    assert len(hashes) == 100


def test_large_records_have_marks_of_their_own() -> None:
    records = [bytes([number]) * 700_000 for number in range(12)]
    store, planned = planned_with(a_tfrecord=b"".join(map(frame, records)))
    index = planned.indices[0]
    assert len(index.marks) >= 8
    record, begin, end = index.around(6, 7)
    assert 6 - record <= 1 and end - begin < 4 * 700_000
    assert reader_of(store, planned).read(Shard(source=0, start=6, end=7)).lines == records[6:7]


def test_records_longer_than_a_chunk() -> None:
    records = [b"a" * 20_000_000, b"b", b"c" * 9_000_000]
    store, planned = planned_with(a_tfrecord=b"".join(map(frame, records)))
    assert reader_of(store, planned).read(Shard(source=0, start=0, end=3)).lines == records


def test_csv_records_across_chunks() -> None:
    rows = [(str(number), "x" * 1000 + '"\n' * (number % 3)) for number in range(12_000)]
    store, planned = planned_with(a_csv=csv_bytes([("n", "text"), *rows]))
    batch = reader_of(store, planned).read(Shard(source=0, start=0, end=12_000)).take(range(12_000))
    assert batch.columns["n"].tolist() == list(range(12_000))
    assert batch.columns["text"].tolist() == [text for _, text in rows]


def test_index_round_trip() -> None:
    _, planned = planned_with(a_csv=b"a,b\n" + b"1,x\n" * 1000)
    index = planned.indices[0]
    again = Block(to_bytes([index]))[0]
    assert (again.number, again.source, again.names) == (index.number, index.source, index.names)
    for name in ("marks", "positions", "sums"):
        np.testing.assert_array_equal(getattr(again, name), getattr(index, name))


def test_index_of_another_number_has_other_sums() -> None:
    store, planned = planned_with(a_csv=b"a\n1\n2\n")
    [data] = discover("memory://data", store)
    assert scan_source(store, data, 1, planned.options).index.total != planned.indices[0].total
    assert data.format == "csv"


@pytest.mark.parametrize("name", ["a_csv", "a_tfrecord", "a_parquet"])
def test_data_that_changed_is_refused(name: str) -> None:
    before, after = {
        "a_csv": (b"a\n1\n2\n", b"a\n1\n3\n"),
        "a_tfrecord": (frame(b"1"), frame(b"2")),
        "a_parquet": tuple(parquet_bytes(pa.table({"a": [value]})) for value in (1, 2)),
    }[name]
    store, planned = planned_with(**{name: before})
    now_s = 0.0
    reader = reader_of(store, planned)
    reader.monotonic = lambda: now_s
    shard = Shard(source=0, start=0, end=1)
    assert len(reader.read(shard)) == 1
    uri = planned.sources[0].uri
    store.write(uri, after)
    now_s = 1.0  # Rows in memory are used for a second.
    with pytest.raises(UserError, match=f"{uri} changed since the job was planned"):
        reader.read(shard)
    store.delete(uri)
    with pytest.raises(UserError, match=f"{uri} was deleted after the job was planned"):
        reader.read(shard)


def test_rows_in_memory_are_used_for_a_second_after_their_file_was_looked_at() -> None:
    class Counting(MemoryStore):
        """Counts how often objects are looked at."""

        looks = 0

        def info(self, uri: str) -> ObjectInfo:
            self.looks += 1
            return super().info(uri)

    store = Counting()
    store.write("memory://data/a.parquet", parquet_bytes(pa.table({"a": [*range(10_000)]})))
    planned = plan_sources("memory://data", ReaderOptions(), store)
    now_s = 5.0
    reader = reader_of(store, planned)
    reader.monotonic = lambda: now_s

    def is_looked_at(start: int) -> bool:
        before = store.looks
        assert reader.read(Shard(source=0, start=start, end=start + 2)).columns["a"].tolist() == [start, start + 1]
        return store.looks > before

    # Rows 4095 and 4096 are of two pages, so they are always read.
    assert [is_looked_at(start) for start in (0, 10, 4095, 4095, 5000, 20)] == [True, False, True, True, True, False]
    now_s = 6.0
    assert is_looked_at(0)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (1, 4), (-1, 2), (3, 2)])
def test_a_range_outside_the_source(start: int, end: int) -> None:
    store, planned = planned_with(a_csv=b"a\n1\n2\n3\n")
    with pytest.raises(IndexError):
        reader_of(store, planned).read(Shard(source=0, start=start, end=end))


@pytest.mark.parametrize("name", ["data.csv", "data.jsonl", "data.csv.gz"])
def test_a_file_that_changes_between_its_check_and_its_read_is_an_error(name: str) -> None:
    class Changing(MemoryStore):
        """Replaces an object right after its etag was asked for."""

        replaces = False

        def info(self, uri: str) -> ObjectInfo:
            found = super().info(uri)
            if self.replaces:
                self._objects[uri] = self._objects[uri][:-1] + bytes([self._objects[uri][-1] ^ 1])
            return found

    text = b"a\n1\n2\n3\n" if "csv" in name else b'{"a": 1}\n{"a": 2}\n'
    store = Changing()
    store.write(f"memory://{name}", gzip.compress(text) if name.endswith("gz") else text)
    data = plan_sources(f"memory://{name}", ReaderOptions(), store)
    reader = Reader(store=store, sources=data.sources, schema=data.schema, index=lambda number: data.indices[number])
    shard = Shard(source=0, start=0, end=2)
    assert len(reader.read(shard)) == 2
    store.replaces = True
    with pytest.raises(UserError):
        reader.read(shard)


def test_parquet_files_with_columns_in_another_order_are_read_by_name() -> None:
    files = []
    for names in (["a", "b"], ["b", "a"]):
        file = io.BytesIO()
        pq.write_table(pa.table({name: [1, 2] if name == "a" else ["x", "y"] for name in names}), file)
        files.append(file.getvalue())
    store, planned = planned_with(a_parquet=files[0], b_parquet=files[1])
    reader = reader_of(store, planned)
    blocks = [reader.read(Shard(source=number, start=0, end=2)) for number in (0, 1)]
    assert [list(block.columns) for block in blocks] == [["a", "b"]] * 2
    assert [block.columns["a"].tolist() for block in blocks] == [[1, 2]] * 2
    for number, block in enumerate(blocks):
        assert block.take(range(2)).checksum == planned.indices[number].total


def test_parquet_files_with_other_columns_are_refused() -> None:
    files = []
    for names in (["a", "b"], ["a", "b", "c"]):
        file = io.BytesIO()
        pq.write_table(pa.table({name: [1] for name in names}), file)
        files.append(file.getvalue())
    with pytest.raises(UserError, match=r"columns differ: .* has a, b; .* has a, b, c"):
        planned_with(a_parquet=files[0], b_parquet=files[1])
