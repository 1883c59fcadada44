"""JSON lines: columns are the keys of all objects, and any range of records is read alone."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats import text
from elasticdl.shared.data.ragged import Ragged
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore


def planned(options: ReaderOptions | None = None, **objects: bytes) -> tuple[Reader, PlannedData]:
    """The reader and the plan of the objects ``NAME.jsonl``."""
    store = MemoryStore()
    for name, data in objects.items():
        store.write(f"memory://data/{name}.jsonl", data)
    plan = plan_sources("memory://data", options or ReaderOptions(), store)
    return Reader(store=store, sources=plan.sources, schema=plan.schema, index=plan.indices.__getitem__), plan


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def types(plan: PlannedData) -> dict[str, str]:
    return {column.name: column.type for column in plan.schema.columns}


def column(reader: Reader, name: str, source: int = 0) -> list[Any]:
    records = reader.index(source).source.records
    return list(reader.read(Shard(source=source, start=0, end=records)).columns[name].tolist())


objects = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=8)},
    optional={
        "share": st.none() | st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.5),
        "items": st.lists(st.integers(0, 9), max_size=3),
    },
)


@given(
    records=st.lists(objects, min_size=1, max_size=30),
    copies=st.integers(1, 30),
    line_break=st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    cuts=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)).map(sorted), min_size=1, max_size=4),
)
def test_ranges(
    records: list[dict[str, Any]], copies: int, line_break: bytes, mark: bytes, cuts: list[list[int]]
) -> None:
    first = {"id": 0, "text": "a", "share": 0.5, "items": [1]}
    records = [first, *records] * copies
    reader, plan = planned(a=mark + line_break.join(json.dumps(record).encode() for record in records))
    assert plan.sources[0].records == len(records)
    assert types(plan) == {"id": "int64", "text": "string", "share": "float64", "items": "list<int64>"}
    for low, high in cuts:
        start, end = low % len(records), min(high, len(records))
        if start < end:
            shard = Shard(source=0, start=start, end=end)
            batch = reader.read(shard).take(range(end - start)[::-1])
            wanted = records[start:end][::-1]
            assert batch.records is batch.columns
            assert batch.checksum == reader.checksum(shard)
            assert batch.columns["id"].tolist() == [record["id"] for record in wanted]
            assert batch.columns["text"].tolist() == [record["text"] for record in wanted]
            shares = [record.get("share") for record in wanted]
            np.testing.assert_array_equal(batch.columns["share"], [np.nan if x is None else x for x in shares])
            items = batch.columns["items"]
            assert isinstance(items, Ragged)
            assert items.values.tolist() == [item for record in wanted for item in record.get("items", [])]


def test_the_keys_of_all_files_are_columns() -> None:
    reader, plan = planned(a=lines({"id": 1}, {"id": 2, "b": 0.5}), b=lines({"city": "x", "id": 3}))
    assert types(plan) == {"id": "int64", "b": "float64", "city": "string"}
    assert column(reader, "city") == ["", ""]
    assert column(reader, "city", source=1) == ["x"]
    np.testing.assert_array_equal(column(reader, "b"), [np.nan, 0.5])
    assert plan.remarks == {"b": "2 missing, filled with NaN"}


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([1, 2.5], "float64"),
        ([1, None], "int64"),
        ([2**63, 1], "uint64"),
        (["2020-01-01 00:00:00", "x"], "string"),
        (["2020-01-01", "2021-01-01"], "string"),
        ([True, False], "bool"),
        ([[1], [2.5], []], "list<float64>"),
        ([[], []], "float64"),
        ([["a"], None], "list<string>"),
        ([None, None], "float64"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [8, 1 << 20])
def test_types(records: list[Any], kind: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk_bytes)
    options = ReaderOptions(fill_missing={"a": "7"} if kind == "int64" else {})
    reader, plan = planned(options, a=lines(*({"a": value} for value in records)))
    assert types(plan) == {"a": kind}
    if kind == "float64" and records == [[], []]:
        return
    missing: Any = {"int64": 7, "float64": np.nan}.get(kind, [])
    np.testing.assert_equal(column(reader, "a"), [missing if value is None else value for value in records])


def test_columns_types_and_fills_are_given() -> None:
    options = ReaderOptions(columns=("c", "a"), column_types={"a": "float32", "c": "int8"}, fill_missing={"c": "-1"})
    reader, plan = planned(options, a=lines({"a": 1, "b": {"nested": 1}}, {"a": 2, "c": 3}))
    assert types(plan) == {"c": "int8", "a": "float32"}
    assert column(reader, "c") == [-1, 3]
    assert np.asarray(reader.read(Shard(source=0, start=0, end=2)).columns["a"]).dtype == np.float32


def test_lists_of_one_length_are_tensors_on_request() -> None:
    reader, _ = planned(
        ReaderOptions(column_types={"pixels": "uint8[3]"}), a=lines({"pixels": [1, 2, 3]}, {"pixels": [4, 5, 6]})
    )
    assert column(reader, "pixels") == [[1, 2, 3], [4, 5, 6]]


def test_compressed_files() -> None:
    store = MemoryStore()
    store.write("memory://data/a.jsonl.gz", gzip.compress(lines(*({"id": number} for number in range(1000)))))
    plan = plan_sources("memory://data", ReaderOptions(), store)
    reader = Reader(store=store, sources=plan.sources, schema=plan.schema, index=plan.indices.__getitem__)
    assert reader.read(Shard(source=0, start=700, end=703)).columns["id"].tolist() == [700, 701, 702]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b'{"a":1}\n{"a":}\n', {}, r"a\.jsonl, record 1 \(from 0\): it is not JSON \(Expecting value, character 5\)"),
        (b'{"a":1}\n5\n', {}, r"record 1 \(from 0\): it is a number, not a JSON object: '5'"),
        (b'{"a":1} {"a":2}\n', {}, r"record 0 \(from 0\): it is not JSON \(Extra data, character 8\)"),
        (b'[{"a":1},\n{"a":2}]\n', {}, r"it is a JSON list, not one object in each line"),
        (b'{"a":"\xff"}\n', {}, r"record 0 \(from 0\): it is not UTF-8 text"),
        (
            b'{"a":1}\n{"a":2}\n{"a":"x"}\n',
            {},
            r"record 2 \(from 0\): column 'a' is (not int64: \"x\"|a string, and a number in records before it)",
        ),
        (b'{"a":{"b":1}}\n', {}, r"column 'a' has nested values, which can't be read"),
        (b'{"a":18446744073709551616}\n', {}, r"column 'a' has integers that need more than 64 bits"),
        (b'{"a":1}\n', {"columns": ("b",)}, r"memory://data has no column 'b'"),
        (b'{"a":1}\n{"a":1.5}\n', {"column_types": {"a": "int64"}}, r"record 1 .*: column 'a' is not int64: 1\.5"),
        (b'{"a":9007199254740993}\n{"a":0.5}\n', {}, r"fractions, NaN or infinity, and integers beyond 2\^53"),
        (b'{"a":1}\n{"b":1}\n', {}, r"values are missing in 'a' \(1 of type int64, the first in record 1"),
        (gzip.compress(b'{"a":1}\n', mtime=0), {}, r"compressed with gzip, but its name does not end with \.gz"),
        (b'{"a":[1,2]}\n{"a":[1]}\n', {"column_types": {"a": "int64[2]"}}, r"record 1 .*column 'a' is not int64\[2\]"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [8, 1 << 20])
def test_what_is_refused(
    data: bytes, options: dict[str, Any], message: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk_bytes)
    with pytest.raises(UserError, match=message):
        planned(ReaderOptions(**options), a=data)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b'{"a": Infinity}\n{"a": 1}\n', [math.inf, 1]),
        (b'{"a": -Infinity}\n', [-math.inf]),
        (b'{"a": 9007199254740992}\n{"a": NaN}\n', [2.0**53, math.nan]),
        (b'{"a": -1152921504606846976}\n{"a": Infinity}\n', [-(2.0**60), math.inf]),
    ],
)
def test_infinity_and_nan_make_a_column_of_floats(data: bytes, values: list[float]) -> None:
    reader, plan = planned(part=data)
    assert types(plan) == {"a": "float64"}
    np.testing.assert_array_equal(column(reader, "a"), values)


def test_an_integer_beside_nan_is_not_rounded() -> None:
    with pytest.raises(UserError, match=r"column 'a' has .*NaN.* and integers beyond 2\^53"):
        planned(part=b'{"a": 9007199254740993}\n{"a": NaN}\n')


@pytest.mark.parametrize(
    "nested",
    [
        "[" * 5000 + "]" * 5000,
        "[ " * 5000 + "]" * 5000,
        '{"a":' * 300_000 + "1" + "}" * 300_000,
        '[{"a":' * 9000 + "1" + "}]" * 9000,
    ],
)
def test_values_that_are_nested_deeply_are_refused_by_their_record(nested: str) -> None:
    with pytest.raises(UserError, match=r"record 1 \(from 0\): its values are nested too deeply"):
        planned(a=f'{{"b": 1}}\n{{"b": 1, "a": {nested}}}\n'.encode())


def test_a_text_of_many_brackets_is_a_text() -> None:
    reader, _ = planned(a=lines({"a": "[" * 5000}))
    assert column(reader, "a") == ["[" * 5000]


def test_lists_of_lists_of_any_depth_are_nested_values() -> None:
    for depth in (2, 50, 800):
        with pytest.raises(UserError, match="column 'a' has nested values"):
            planned(a=f'{{"b": 1, "a": {"[" * depth}{"]" * depth}}}\n'.encode())


def test_a_number_and_a_list_are_named() -> None:
    with pytest.raises(UserError, match="column 'a' is a list, and a number in records before it"):
        planned(a=lines({"a": 1}, {"a": [1]}))
