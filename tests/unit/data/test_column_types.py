"""What a reader returns is what was written, for every kind of column, and never a rounded number."""

from __future__ import annotations

import datetime
import decimal
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.ragged import Ragged
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore

LARGE = (1 << 53) + 1
"""The least positive integer that float64 can't hold."""


def parquet(**columns: pa.Array | list[Any]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=3)
    return file.getvalue()


class Data:
    """A planned data set in memory.

    Args:
        files: content of each; text is CSV, bytes are Parquet.
        options: see ``ReaderOptions``.
    """

    def __init__(self, *files: str | bytes, **options: Any) -> None:
        self.store = MemoryStore()
        for number, content in enumerate(files):
            name, data = (
                (f"{number}.csv", content.encode()) if isinstance(content, str) else (f"{number}.parquet", content)
            )
            self.store.write(f"memory://d/{name}", data)
        self.planned: PlannedData = plan_sources("memory://d", ReaderOptions(**options), self.store)

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.planned.schema.columns}

    def read(self, source: int = 0) -> Any:
        """All columns of a source."""
        sources, schema = self.planned.sources, self.planned.schema
        reader = Reader(store=self.store, sources=sources, schema=schema, index=self.planned.indices.__getitem__)
        return reader.read(Shard(source=source, start=0, end=sources[source].records)).columns

    def values(self, name: str, source: int = 0) -> list[Any]:
        found: list[Any] = self.read(source)[name].tolist()
        return found


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20), st.sampled_from(["csv", "parquet"]))
def test_64_bit_ids_keep_all_bits_next_to_a_missing_one(ids: list[int], data_format: str) -> None:
    with_gap = [*ids, None]
    text = "id,x\n" + "".join(f"{'' if value is None else value},1\n" for value in with_gap)
    data = text if data_format == "csv" else parquet(id=pa.array(with_gap, pa.int64()))
    with pytest.raises(UserError, match=f"values are missing in 'id' .*record {len(ids)} "):
        Data(data)
    filled = Data(data, fill_missing={"id": "-1"})
    assert filled.types["id"] == "int64"
    assert filled.values("id") == [*ids, -1]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, LARGE], "int64"),
        ([0, (1 << 63) + 1, (1 << 64) - 1], "uint64"),
        ([-1, (1 << 63) + 1], "string"),
        ([0, 1 << 64], "string"),
    ],
)
def test_csv_integers_beyond_int64_are_not_rounded(values: list[int], kind: str) -> None:
    one = Data("id\n" + "".join(f"{value}\n" for value in values))
    several = Data(*(f"id\n{value}\n" for value in values))
    assert one.types == several.types == {"id": kind}
    assert [int(value) for value in one.values("id")] == values
    assert [int(several.values("id", number)[0]) for number in range(len(values))] == values


@pytest.mark.parametrize(
    "files", [[f"x\n0.5\n{LARGE}\n"], [f"x\n{LARGE}\n", "x\n0.5\n"], ["x\n.5\n", f"x\n-{LARGE}\n"]]
)
def test_fractions_and_large_integers_in_one_column_are_refused(files: list[str]) -> None:
    with pytest.raises(
        UserError, match=r"column .x. has fractions, NaN or infinity, and integers beyond 2\^53.*record [01]"
    ) as refused:
        Data(*files)
    assert "--column_types x=string" in refused.value.hint
    assert str(LARGE) in str([Data(*files, column_types={"x": "string"}).values("x", n) for n in range(len(files))])
    assert Data(*files, column_types={"x": "float64"}).types == {"x": "float64"}


def test_integers_that_a_float_holds_are_not_refused() -> None:
    text = f"x\n0.5\n{1 << 60}\n{(1 << 54) + 4}.0\n"
    assert Data(text).values("x") == [0.5, 2.0**60, 2.0**54 + 4]
    assert Data(parquet(x=[1 << 60, -(1 << 63)]), parquet(x=[0.5])).values("x") == [2.0**60, -(2.0**63)]
    with pytest.raises(UserError, match=r"beyond 2\^53.*record 1"):
        Data(f"x\n0.5\n{LARGE}.0\n")


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9))
def test_an_integer_is_refused_exactly_if_a_float_can_not_hold_it(values: list[int]) -> None:
    files = parquet(x=pa.array(values, pa.int64())), parquet(x=[0.5])
    if all(int(float(value)) == value for value in values):
        assert Data(*files).values("x") == values
    else:
        place = next(place for place, value in enumerate(values) if int(float(value)) != value)
        with pytest.raises(UserError, match=f"beyond 2.*record {place} "):
            Data(*files)


def test_leading_zeros_are_pointed_out() -> None:
    text = "zip,n,x\n01234,10,0.5\n10000,0,10.01\n"
    assert Data(text).planned.remarks == {"zip": "without its leading zeros; keep them with --column_types zip=string"}
    assert Data(text, column_types={"zip": "string"}).planned.remarks == {}
    assert Data("zip,n\n01234,10\nx,0\ny,0\n").planned.remarks == {}


@pytest.mark.parametrize("text", ["?", "12,5", "1.2.3", "-"])
def test_a_value_that_makes_text_of_a_column_of_numbers_is_named(text: str) -> None:
    remark = f"because record 2 (from 0) of {{uri}} has {text!r}, where most values are numbers"
    data = Data("x,word\n1,a\n-2.5e3,1\n", f'x,word\n1,a\n.5,b\n"{text}",2\n7,c\n')
    assert data.planned.remarks == {"x": remark.format(uri=data.planned.sources[1].uri)}


def test_words_among_few_numbers_are_not_pointed_out() -> None:
    assert Data("x\n1\na\nb\n").planned.remarks == {}


def test_text_that_means_missing_in_a_column_of_numbers_is_text_in_one_of_strings() -> None:
    several = Data("x\n1\nNA\n", "x\nword\n\n")
    assert several.values("x", 0) == ["1", "NA"]
    assert several.planned.remarks == {}
    assert Data(f"x\n{1 << 70}\nNA\n").planned.remarks == {}


def test_nan_in_an_integer_is_missing() -> None:
    data = parquet(x=pa.array([float("nan"), 2.0]))
    with pytest.raises(UserError, match="'x' \\(1 of type int64, the first in record 0"):
        Data(data, column_types={"x": "int64"})
    assert Data(data, column_types={"x": "int64"}, fill_missing={"x": "-1"}).values("x") == [-1, 2]


def test_floats_that_are_large_or_written_with_an_exponent_are_floats() -> None:
    data = Data("x\n1e300\n12345678901234567890.5\n0.5\n\n7\n")
    assert data.types == {"x": "float64"}
    assert data.values("x")[:3] == [1e300, 12345678901234567890.5, 0.5]


def test_the_refusal_of_missing_integers_can_be_pasted() -> None:
    table = parquet(id=pa.array([1, None], pa.int64()), flag=pa.array([None, True]), u=pa.array([1, None], pa.uint8()))
    with pytest.raises(UserError, match=r"'id' \(1 of type int64, .*'flag' \(1 of type bool.*'u'") as refused:
        Data(table)
    assert "--fill_missing id=-1,flag=false,u=0" in refused.value.hint
    assert "--column_types id=float64,flag=float64,u=float64" in refused.value.hint
    fills = {"id": "-1", "flag": "false", "u": "0"}
    assert {name: Data(table, fill_missing=fills).values(name) for name in fills} == {
        "id": [1, -1],
        "flag": [False, True],
        "u": [1, 0],
    }
    as_floats = Data(table, column_types=dict.fromkeys(fills, "float64")).read()
    np.testing.assert_array_equal(as_floats["id"], [1, np.nan])
    np.testing.assert_array_equal(as_floats["flag"], [np.nan, 1])
    with pytest.raises(UserError) as large:
        Data(parquet(id=pa.array([LARGE, None], pa.int64())))
    assert "float64" not in large.value.hint, "floats would round"


def test_other_missing_values_are_nan_and_empty_unless_a_value_is_given() -> None:
    for data in ("f,s\n0.5,x\n,\n", parquet(f=[0.5, None], s=["x", None])):
        plain = Data(data)
        assert plain.values("s") == ["x", ""]
        np.testing.assert_array_equal(plain.read()["f"], [0.5, np.nan])
        filled = Data(data, fill_missing={"f": "-2.5", "s": "unknown"})
        assert filled.values("f") == [0.5, -2.5]
        assert filled.values("s") == ["x", "unknown"]
        assert "1 missing, filled with NaN" in plain.planned.remarks["f"]


def test_given_types() -> None:
    text = 'zip,n,f\n01234,1,1\n"00001",2,2.5\n'
    assert Data(text).types == {"zip": "int64", "n": "int64", "f": "float64"}
    data = Data(text, column_types={"zip": "string", "n": "int8", "f": "float32"})
    assert data.values("zip") == ["01234", "00001"]
    assert data.read()["n"].dtype == np.int8
    assert data.read()["f"].dtype == np.float32
    table = Data(
        parquet(id=pa.array([1.0, 2.0]), text=["7", "8"], number=[1, 2], price=pa.array([1, 2], pa.decimal128(9, 2))),
        column_types={"id": "int64", "text": "int32", "number": "string", "price": "float64"},
    )
    assert table.types == {"id": "int64", "text": "int32", "number": "string", "price": "float64"}
    assert [table.values(name) for name in table.types] == [[1, 2], [7, 8], ["1", "2"], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ("a,x\n0,1\n0,2\n0,oops\n", "int64", r"0\.csv, record 2 .*: column 'x' is not int64: 'oops'"),
        ("a,x\n0,1\n0,300\n", "uint8", r"record 1 .*: column 'x' is not uint8: '300'"),
        ("a,x\n0,1\n0,2.5\n", "int64", r"record 1 .*: column 'x' is not int64: '2\.5'"),
        (parquet(x=[1.0, 2.0, 3.0, 2.5]), "int64", r"0\.parquet, record 3 .*: column 'x' is not int64: 2\.5"),
        (parquet(x=["1", "2", "3", "4", "y"]), "int32", r"record 4 .*: column 'x' is not int32: 'y'"),
        (parquet(x=[1, 300]), "int8", r"record 1 .*: column 'x' is not int8: 300"),
    ],
)
def test_a_value_that_does_not_fit_its_given_type_is_named(data: str | bytes, kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Data(data, column_types={"x": kind})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column_types": {"x": "integer"}}, "--column_types x=integer: there is no such type"),
        ({"column_types": {"xx": "int64"}}, r"0\.csv has no column 'xx'"),
        ({"columns": ("x", "nothing")}, r"0\.csv has no column 'nothing'"),
        ({"columns": ("x", "x")}, "--columns names 'x' twice"),
        ({"fill_missing": {"x": "none"}}, "--fill_missing x=none: the column is int64"),
    ],
)
def test_options_that_do_not_fit_the_data(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Data("x,y\n1,2\n", **options)


def test_columns_are_selected_and_ordered() -> None:
    for data in ("a,b,c\n1,x,3\n4,y,6\n", parquet(a=[1, 4], b=["x", "y"], c=[3, 6])):
        chosen = Data(data, columns=("c", "a"))
        assert {name: chosen.values(name) for name in chosen.read()} == {"c": [3, 6], "a": [1, 4]}
        assert list(chosen.read()) == ["c", "a"]
    nested = Data(parquet(a=[1], odd=pa.array([{"x": 1}])), columns=("a",))
    assert nested.values("a") == [1]


def test_dates_are_integers_and_the_remark_says_of_what() -> None:
    day = datetime.date(1970, 1, 11)
    data = Data(
        parquet(
            day=pa.array([day]),
            at=pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us")),
            late=pa.array([5], pa.duration("ns")),
        )
    )
    assert data.types == {"day": "int64", "at": "int64", "late": "int64"}
    assert [data.values(name)[0] for name in data.types] == [10, 1_000_000, 5]
    assert data.planned.remarks == {
        "day": "was date32, days",
        "at": "was timestamp[us], microseconds",
        "late": "was duration[ns], nanoseconds",
    }
    assert Data(parquet(day=pa.array([day])), column_types={"day": "string"}).values("day") == ["1970-01-11"]


def test_lists_are_ragged_and_lists_of_fixed_size_dense() -> None:
    lists: list[Any] = [[1, LARGE], [], None, [4], [5, 6, 7]]
    data = Data(
        parquet(
            items=pa.array(lists, pa.list_(pa.int64())),
            tags=pa.array([["a"], ["b", ""], [], ["c"], [None]]),
            vector=pa.array([[1, 2]] * 3 + [[3, 4]] * 2, pa.list_(pa.float32(), 2)),
        )
    )
    assert data.types == {"items": "list<int64>", "tags": "list<string>", "vector": "float32[2]"}
    assert data.values("items") == [each or [] for each in lists]
    assert data.values("tags") == [["a"], ["b", ""], [], ["c"], [""]]
    assert data.values("vector") == [[1, 2]] * 3 + [[3, 4]] * 2


@given(
    lists=st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=30),
    order=st.randoms(use_true_random=False),
    start=st.integers(0, 30),
)
def test_ragged_columns_follow_the_order_of_the_records(lists: list[list[int]], order: Any, start: int) -> None:
    ragged = Ragged(
        values=np.array([value for each in lists for value in each], np.int64),
        splits=np.cumsum([0, *map(len, lists)]).astype(np.int64),
    )
    places = list(range(len(lists)))
    order.shuffle(places)
    moved = ragged.take(np.array(places))
    assert moved.tolist() == [lists[place] for place in places]
    assert moved.take(slice(start, start + 3)).tolist() == [lists[place] for place in places][start : start + 3]


def test_missing_elements_of_lists() -> None:
    items = parquet(items=pa.array([[1, 2], [None]], pa.list_(pa.int32())))
    with pytest.raises(UserError, match=r"'items' \(1 of type list<int32>, the first in record 1 "):
        Data(items)
    assert Data(items, fill_missing={"items": "0"}).values("items") == [[1, 2], [0]]
    fixed = parquet(v=pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)))
    with pytest.raises(UserError, match=r"'v' .*record 1 "):
        Data(fixed)
    assert Data(fixed, fill_missing={"v": "9"}).values("v") == [[1, 2], [9, 9], [3, 4]]
    floats = Data(parquet(v=pa.array([[0.5, None], None], pa.list_(pa.float32(), 2)))).read()["v"]
    np.testing.assert_array_equal(floats, np.array([[0.5, np.nan], [np.nan, np.nan]], np.float32))


def test_hashes_of_lists_tell_them_apart() -> None:
    variants: list[list[Any]] = [
        [[1, 2], [3]],
        [[1], [2, 3]],
        [[2, 1], [3]],
        [[1, 2], []],
        [[1, 2], None],
        [[1, 2, 3], []],
    ]
    totals = {Data(parquet(x=pa.array(lists, pa.list_(pa.int64())))).planned.indices[0].total for lists in variants}
    assert len(totals) == len(variants)


def test_signed_and_unsigned_files_do_not_become_floats() -> None:
    signed, unsigned = parquet(x=pa.array([-1], pa.int64())), parquet(x=pa.array([1 << 63], pa.uint64()))
    with pytest.raises(UserError, match=r"column 'x' is uint64 in .*1\.parquet and int64"):
        Data(signed, unsigned)
    with pytest.raises(UserError, match="beyond 2"):
        Data(parquet(x=[LARGE]), parquet(x=[0.5]))
    assert Data(parquet(x=[1]), parquet(x=[0.5])).types == {"x": "float64"}


def test_decimals_need_a_type() -> None:
    data = parquet(price=pa.array([decimal.Decimal("1.25")]))
    with pytest.raises(UserError, match="column 'price' has type decimal128") as refused:
        Data(data)
    assert "--column_types price=float64" in refused.value.hint
    assert Data(data, column_types={"price": "float64"}).values("price") == [1.25]
