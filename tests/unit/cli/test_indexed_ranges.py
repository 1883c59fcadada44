"""A file that is scanned in ranges has the index and the columns of one that is scanned from the beginning."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.cli.indexing.ranges import FileRange, ScannedRange, divide, join, scan_range
from elasticdl.shared.data import DataObject, ReaderOptions, ScannedSource, scan_source
from elasticdl.shared.data.formats import text
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.storage.tfrecord_frame import frame

OPTIONS = ReaderOptions(csv_delimiter=",")
CHUNK = 64
"""Bytes that the scanners of text read at a time here, so that small files have many ranges."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", CHUNK)


def stored(content: bytes, data_format: str) -> tuple[MemoryStore, DataObject]:
    store = MemoryStore()
    info = store.write(f"memory://data.{data_format}", content)
    return store, DataObject(info=info, format=data_format)


def in_ranges(
    store: MemoryStore, data: DataObject, range_bytes: int, options: ReaderOptions = OPTIONS
) -> tuple[ScannedSource | None, int]:
    """The source, and how many of its ranges had to be scanned again."""
    parts: list[tuple[FileRange, ScannedRange | UserError]] = []
    for part in divide(store, data, range_bytes):
        try:
            parts.append((part, scan_range(store, data, options, part)))
        except UserError as error:
            parts.append((part, error))
    repeated = []

    def again(part: FileRange) -> ScannedRange:
        repeated.append(part)
        return scan_range(store, data, options, part)

    return join(data, 3, options, parts, again), len(repeated)


def check(content: bytes, data_format: str, range_bytes: int = CHUNK) -> int:
    """Compare both scans; returns how many ranges were scanned again."""
    store, data = stored(content, data_format)
    try:
        expected = scan_source(store, data, 3, OPTIONS)
    except UserError:
        assert in_ranges(store, data, range_bytes)[0] is None, "only the scan from the beginning tells what is wrong"
        return 0
    found, repeated = in_ranges(store, data, range_bytes)
    assert found is not None
    assert to_bytes([found.index]) == to_bytes([expected.index])
    assert found.found == expected.found
    return repeated


TEXTS = st.text(st.sampled_from('ab",\n\r é0'), max_size=80)
CELLS = st.one_of(TEXTS, st.integers(-(1 << 66), 1 << 66).map(str), st.floats(allow_nan=False).map(str), st.just(""))


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=60),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
def test_csv_with_quotes(rows: Sequence[tuple[str, str]], quotes: bool, end: str, whole: bool) -> None:
    def written(cell: str) -> str:
        return quoted(cell) if quotes or set(cell) & set('",\n\r') else cell

    text = end.join(["a,b", *(",".join(map(written, row)) for row in rows)]) + (end if whole else "")
    check(text.encode(), "csv")
    check(b"\xef\xbb\xbf" + text.encode(), "csv", 3 * CHUNK)


@given(st.lists(st.integers(0, 99), min_size=100, max_size=200))
def test_ranges_of_csv_without_quotes_begin_where_they_were_guessed(numbers: Sequence[int]) -> None:
    assert check(b"a\n" + b"\n".join(b"%d" % number for number in numbers), "csv") == 0


def test_a_range_that_begins_inside_of_a_quoted_value_is_scanned_again() -> None:
    text = 'a,b\n1,"' + "x\n" * 200 + '"\n' + "2,y\n" * 100
    assert check(text.encode(), "csv") > 0


@given(st.lists(st.sampled_from(['1,"5 disc', "2,x", '3,"y"', '4,"x" tail', '5,6" x', '"7,\n",8']), max_size=60))
def test_csv_with_stray_quotes(rows: Sequence[str]) -> None:
    check("\n".join(["a,b", *rows]).encode(), "csv")


VALUES = st.one_of(
    st.none(), st.integers(-(1 << 62), 1 << 62), st.floats(allow_nan=False, allow_infinity=False), st.just("2020-01-01")
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=40))
def test_json_lines(records: Sequence[dict[str, object]]) -> None:
    check("".join(json.dumps(record) + "\n" for record in records).encode(), "json")


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(16, 300), st.randoms(use_true_random=False))
def test_tfrecords(lengths: Sequence[int], range_bytes: int, random: object) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    # Records that contain framed records look like the beginning of one.
    records = [rng.bytes(length) if length % 3 else frame(bytes(length // 2)) + bytes(20) for length in lengths]
    check(b"".join(map(frame, records)), "tfrecord", range_bytes)
    damaged = bytearray(b"".join(map(frame, records)))
    if damaged:
        damaged[random.randrange(len(damaged))] ^= 1  # type: ignore[attr-defined]
        check(bytes(damaged), "tfrecord", range_bytes)
        check(bytes(damaged[:-1]), "tfrecord", range_bytes)


@pytest.mark.parametrize("range_bytes", [1, 300, 1000])
def test_row_groups(range_bytes: int) -> None:
    file = io.BytesIO()
    table = pa.table({"a": pa.array([None, *range(499)]), "b": [[number] * (number % 3) for number in range(500)]})
    pq.write_table(table, file, row_group_size=70)
    check(file.getvalue(), "parquet", range_bytes)


def test_compressed_files_are_not_divided() -> None:
    store = MemoryStore()
    data = DataObject(info=store.write("memory://a.csv.gz", bytes(1000)), format="csv")
    assert len(divide(store, data, 10)) == 1
