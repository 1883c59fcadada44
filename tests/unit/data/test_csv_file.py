from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import DataSchema, PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats.csv_file import cut
from elasticdl.shared.data.schema import options_of, schema_of, spec_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore


def plan(*files: bytes | str, options: ReaderOptions | None = None, schema: DataSchema | None = None) -> PlannedData:
    return planned_in(MemoryStore(), *files, options=options, schema=schema)


def planned_in(
    store: MemoryStore, *files: bytes | str, options: ReaderOptions | None = None, schema: DataSchema | None = None
) -> PlannedData:
    for number, data in enumerate(files):
        store.write(f"memory://d/{number}.csv", data.encode() if isinstance(data, str) else data)
    return plan_sources("memory://d", options or ReaderOptions(), store, schema=schema)


def types(planned: PlannedData) -> dict[str, str]:
    return {column.name: column.type for column in planned.schema.columns}


def columns(store: MemoryStore, planned: PlannedData, source: int = 0) -> dict[str, list[object]]:
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    block = reader.read(Shard(source=source, start=0, end=planned.sources[source].records))
    return {name: list(values.tolist()) for name, values in block.columns.items()}


def test_types_are_the_narrowest_that_hold_all_values() -> None:
    planned = plan(
        "i,f,s,date,flag,missing,none,late\n1,1,x,2020-01-01,true,1.5,,1\n-2,2.5,2,2020-01-02,false,,,2\n",
        "i,f,s,date,flag,missing,none,late\n3,nan,y,2020-01-03,true,7,,word\n",
    )
    assert types(planned) == {
        "i": "int64",
        "f": "float64",
        "s": "string",
        "date": "string",
        "flag": "string",
        "missing": "float64",
        "none": "string",
        "late": "string",
    }


def test_values_of_a_source_are_read_with_the_types_of_all() -> None:
    store = MemoryStore()
    planned = planned_in(store, "a,b,c\n1,1,\n", "a,b,c\n0.5,x,3.0\n")
    assert columns(store, planned, 0)["a"] == [1.0]
    assert columns(store, planned, 0)["b"] == ["1"]
    assert str(columns(store, planned, 0)["c"]) == "[nan]"
    assert columns(store, planned, 1) == {"a": [0.5], "b": ["x"], "c": [3.0]}


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n2,y\n",
        "a,b\n1,x\n2,y",
        "a,b\r\n1,x\r\n2,y\r\n",
        "\n\na,b\n\n1,x\n\n\n2,y\n\n",
        "\ufeffa,b\n1,x\n2,y\n",
        '"a","b"\n"1","x"\n2,y\n',
        " a ,b\n1,x\n2,y\n",
    ],
)
def test_layouts_that_mean_the_same(text: str) -> None:
    store = MemoryStore()
    assert columns(store, planned_in(store, text)) == {"a": [1, 2], "b": ["x", "y"]}


def test_without_header_and_with_another_delimiter() -> None:
    store = MemoryStore()
    planned = planned_in(store, "1;x,1\n2;y\n", options=ReaderOptions(csv_header=False, csv_delimiter=";"))
    assert columns(store, planned) == {"column_0": [1, 2], "column_1": ["x,1", "y"]}


def test_one_column() -> None:
    store = MemoryStore()
    assert columns(store, planned_in(store, 'a\n1.\n""\n3\n'))["a"][::2] == [1.0, 3.0]


def test_quoted_line_breaks_are_part_of_the_value() -> None:
    store = MemoryStore()
    planned = planned_in(store, 'a,b\n1,"x\ny, ""z""\r\n\n"\n2,w\n')
    assert columns(store, planned) == {"a": [1, 2], "b": ['x\ny, "z"\r\n\n', "w"]}


def test_a_file_without_records_next_to_one_with_records() -> None:
    assert [source.records for source in plan("a\n", "", "a\n1\n").sources] == [0, 0, 1]
    assert types(plan("a\n", "a\n1\n")) == {"a": "int64"}


@pytest.mark.parametrize("files", [("",), ("a,b\n",), ("a,b", "\n")])
def test_no_records_at_all(files: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="memory://d has no records"):
        plan(*files)


ROWS = "a,b\n" + "1,x\n" * 700


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ROWS + "1,x,9\n" + "1,x\n", r"0\.csv, record 700 .*: it has 3 columns instead of 2: '1,x,9'"),
        (ROWS + "1\n", r"record 700 .*: it has 1 column instead of 2: '1'"),
        ('a,b\n1,x\n2,5" pipe\n3,6" pipe\n', r"record 1 .*quote"),
        (ROWS + '1,"x\n1,x\n', r"the quote opened in record 700 \(from 0\) is never closed"),
        (ROWS + '1,"5 disc\n2,x\n3,"6 disc\n4,x\n', r"0\.csv, record 700 .*text follows the quote that closes it"),
        (ROWS + '1,"x" tail\n1,x\n', r"""record 700 .*text follows the quote that closes it.*: '1,"x" tail'"""),
        (ROWS + '1,5" x,"y\nz"\nw,"1"\n', r"record 700 .*a quote is in the middle of a value"),
        ('a,"b" x\n1,x\n', r"0\.csv: .*text follows the quote that closes it.*, in its first line"),
        ('a,"b\n1,"x\n2,y\n', r"0\.csv: .*text follows the quote that closes it.*, in its first line"),
        (ROWS.encode() + b"1,\xff\n", r"record 700 .*UTF-8"),
        ("a,a\n1,2\n", "its header has two columns named 'a'"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (b"a,\xfc\n1,2\n", "its first line is not UTF-8 text\n  Convert the file to UTF-8"),
        ("a,b\r1,x\r2,y\r", r"0\.csv: its lines end with a carriage return \(CR\) alone"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "compressed with gzip"),
    ],
)
def test_what_is_refused(data: bytes | str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(data)


def test_other_text_than_utf_8_is_refused_with_a_command_that_converts_it() -> None:
    with pytest.raises(
        UserError, match=r"record 0 .* it is not UTF-8 text: .*\n  Convert the file to UTF-8"
    ) as refused:
        plan("a,b\nä,1\n".encode("latin-1"))
    assert "--column_types" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "flag"), [("a;b\n0,1;2\n", "';'"), ("a\tb\n0,1\t2\n", r"$'\t'"), ("a|b\n1,2|3\n", "'|'")]
)
def test_another_delimiter_is_suggested(text: str, flag: str) -> None:
    with pytest.raises(UserError, match="columns instead of 1") as refused:
        plan(text)
    assert refused.value.hint == f"If {flag} separates the columns: --csv_delimiter={flag}"


def test_numbers_with_decimal_commas_and_semicolons_suggest_the_delimiter() -> None:
    with pytest.raises(UserError, match="it has 4 columns instead of 1") as refused:
        plan("a;b;c\n0,5;1,5;2,5\n")
    assert refused.value.hint == "If ';' separates the columns: --csv_delimiter=';'"


def test_empty_validation_data_is_not_called_training_data() -> None:
    training = plan("a\n1\n")
    with pytest.raises(UserError) as refused:
        plan("a\n", schema=training.schema)
    assert refused.value.hint == "Validation data needs at least one."


def test_headers_must_agree() -> None:
    with pytest.raises(UserError, match=r"0\.csv has a, b; memory://d/1\.csv has b, a"):
        plan("a,b\n1,2\n", "b,a\n1,2\n")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", r"0\.csv, record 1 .*: column 'b' is not int64: 'x'"),
        ("", r"missing in 'b' \(1 of type int64, the first in record 1 .*0\.csv"),
    ],
)
def test_validation_values_that_do_not_fit_the_training_schema(value: str, message: str) -> None:
    schema = plan("a,b\nx,1\n").schema
    with pytest.raises(UserError, match=message):
        plan(f"a,b\ny,2\nz,{value}\n", schema=schema)


def test_validation_values_of_a_narrower_type_fit() -> None:
    schema = plan("a,b\nx,1.5\n").schema
    store = MemoryStore()
    planned = planned_in(store, "a,b\n1,2\n2,\n", "a,b\n,\n", schema=schema)
    assert planned.schema == schema
    assert columns(store, planned)["a"] == ["1", "2"]


def test_validation_columns_that_do_not_fit_the_training_schema() -> None:
    with pytest.raises(UserError, match=r"0\.csv has no column 'b'"):
        plan("a\n1\n", schema=plan("a,b\n1,2\n").schema)


@pytest.mark.parametrize("delimiter", [",,", '"', "\n", "é"])
def test_delimiters_that_can_not_work(delimiter: str) -> None:
    with pytest.raises(UserError, match="csv_delimiter"):
        ReaderOptions(csv_delimiter=delimiter)


def test_a_job_records_the_schema_and_how_the_data_was_read() -> None:
    options = ReaderOptions(columns=("b", "a"), column_types={"a": "int8"}, fill_missing={"b": "?"})
    planned = plan("a,b,c\n1,x,0\n", options=options)
    spec = spec_of(planned.schema, csv_header=True)
    assert schema_of(spec) == planned.schema
    assert (planned.schema.metadata.format, planned.schema.metadata.column_names) == ("csv", ("b", "a"))
    store = MemoryStore()
    again = planned_in(store, "a,b,c\n1,x,0\n", options=options_of(spec))
    assert again.schema == planned.schema
    assert again.options.columns == planned.options.columns


def test_quotes_in_the_middle_of_a_value_are_a_part_of_it() -> None:
    store = MemoryStore()
    text = 'a,b\n5" x 6",the "big" one\n"a ""b"" c","d\ne"\n"","f""g"\n"""",h\n'
    assert columns(store, planned_in(store, text)) == {
        "a": ['5" x 6"', 'a "b" c', "", '"'],
        "b": ['the "big" one', "d\ne", 'f"g', "h"],
    }


@given(st.lists(st.sampled_from(['"', ",", "\n", "x", '""']), max_size=24).map("".join))
def test_records_are_cut_where_pyarrow_cuts_them(text: str) -> None:
    """Or the text is refused: no two records become one."""
    store = MemoryStore()
    lines = cut(text.encode(), final=True)[0]
    try:
        planned = planned_in(store, "a,b\n1,2\n" + text)
    except UserError:
        return
    expected = [list(csv.reader(io.StringIO(line.decode()))) for line in lines]
    assert all(len(rows) == 1 for rows in expected), "a record is one row"
    read = columns(store, planned)
    assert [list(map(str, row)) for row in zip(*read.values(), strict=True)][1:] == [rows[0] for rows in expected]


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("a\n5\n0x10\n", "0x10 is read as 16"),
        ("a\n5\n1e400\n", "1e400 is read as inf"),
        ("a\n-1e999\n0.5\n", "-1e999 is read as -inf"),
        ("a\ninf\n0.5\n", None),
        ("a\nx\n0x10\n", None),
    ],
)
def test_numbers_that_become_others_are_named(text: str, remark: str | None) -> None:
    assert plan(text).remarks.get("a") == remark
