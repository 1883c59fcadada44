"""What ``elasticdl data inspect`` prints."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.cli.commands.inspect_data import inspect_data
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import DataFlags
from elasticdl.zoo.example_pb2 import Example


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_columns_and_the_first_records(capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"id": 7, "name": "x" * 100, "items": list(range(6))}, {"id": 8, "items": []}]
    Path("a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    inspect_data("a.jsonl", DataFlags(fill_missing="name=none"), samples=2)
    assert capsys.readouterr().out.splitlines() == [
        "a.jsonl: 2 records in 1 file (json), 174 bytes",
        "Columns:",
        "  id: int64; values 7, 8",
        f"  name: string (1 missing, filled with none); 4 to 100 characters; values '{'x' * 59}..., 'none'",
        "  items: list<int64>; 0 to 5; 0 to 6 values in a list",
        "Record 0:",
        "  id: 7",
        f"  name: '{'x' * 59}...",
        "  items: [0, 1, 2, 3, 4, ... (6 values)]",
        "Record 1:",
        "  id: 8",
        "  name: 'none'",
        "  items: []",
    ]


def test_many_files_are_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        Path(f"part-{number:02}.csv").write_text("a\n" + "1\n" * number)
    inspect_data(".", DataFlags(), samples=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ".: 66 records in 12 files (csv), 156 bytes"
    assert [line for line in lines if "part-" in line][-1].split("\t")[1] == "9"
    assert next(line for line in lines if line.startswith("and ")).split("\t") == ["and 2 files more", "21", "46 bytes"]
    assert lines[-2:] == ["Columns:", "  a: int64; values 1"]


def test_features_of_tfrecords(capsys: pytest.CaptureFixture[str]) -> None:
    example = Example()
    example.features.feature["image"].bytes_list.value.append(b"\xff" * 784)
    example.features.feature["label"].int64_list.value.append(3)
    example.features.feature["name"].bytes_list.value.append(b"cat")
    write_records("a.tfrecord", [example.SerializeToString(), b"\xff\xff"])
    inspect_data("a.tfrecord", DataFlags(), samples=5)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Record 0:",
        "  image: 784 bytes",
        "  label: int64 [3]",
        "  name: bytes [b'cat']",
        "Record 1:",
        "  2 bytes, not a tf.train.Example",
    ]


def test_what_is_wrong_is_named() -> None:
    Path("a.csv").write_text("id,zip\n1,2\n3\n")
    with pytest.raises(UserError, match=r"a\.csv, record 1 .*: it has 1 column instead of 2"):
        inspect_data("a.csv", DataFlags(), samples=1)


def test_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("a.npz", image=np.arange(8, dtype=np.uint8).reshape(2, 2, 2), name=np.array(["a", "b"]))
    inspect_data("a.npz", DataFlags(), samples=1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Columns:",
        "  image: uint8[2x2]; 0 to 7",
        "  name: string; 1 to 1 characters; values 'a', 'b'",
        "Record 0:",
        "  image: [[0, 1], [2, 3]]",
        "  name: 'a'",
    ]


def test_images_in_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat/1.png", "dog/1.png", "dog/2.png"):
        Path("d", name).parent.mkdir(parents=True, exist_ok=True)
        Path("d", name).write_bytes(b"\x89PNG\r\n\x1a\n")
    inspect_data("d", DataFlags(columns="label,image"), samples=0)
    assert capsys.readouterr().out.splitlines() == [
        "d: 3 records in 3 files (images), 24 bytes",
        "Columns:",
        "  label: int64 (0 is cat, 1 is dog)",
        "  image: binary",
    ]


def test_every_problem_of_a_column_is_said_after_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("id,city,big,n\n1,Rome,0.5,1\n,,9007199254740993,\n9,Oslo,1,3\n")
    with pytest.raises(UserError) as refused:
        inspect_data("a.csv", DataFlags(), samples=0)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Columns:",
        "  id: int64 (1 missing); values 1, 9",
        "  city: string; 1 empty; 4 to 4 characters; values 'Rome', 'Oslo'",
        "  big: float64; values 0.5, 9007199254740993, 1",
        "  n: int64 (1 missing); values 1, 3",
    ]
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("column 'big' has fractions")
    assert "--column_types big=string" in lines[1]
    assert "values are missing in 'id'" in lines[2]
    assert "--fill_missing id=-1,n=-1" in lines[3]
    assert len(lines) == 4


_DAYS = [date(2020, 1, 1), None, date(2020, 1, 3)]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (pa.array(_DAYS), "x: int64 (was date32, days, 1 missing); values '2020-01-01', '2020-01-03'"),
        (
            pa.array([datetime(2020, 1, 1), None], pa.timestamp("us")),
            "x: int64 (was timestamp[us], microseconds, 1 missing); values '2020-01-01 00:00:00.000000'",
        ),
        (
            pa.array([60, None], pa.time32("s")),
            "x: int64 (was time32[ms], milliseconds, 1 missing); values '00:01:00.000'",
        ),
        (
            pa.array([60, None], pa.duration("s")),
            "x: int64 (was duration[s], seconds, 1 missing); values 60",
        ),
        (pa.array([True, None, False]), "x: bool (1 missing); values True, False"),
    ],
)
def test_missing_dates_and_booleans_of_parquet(values: pa.Array, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"x": values}), "a.parquet")
    with pytest.raises(UserError, match="values are missing in 'x'"):
        inspect_data("a.parquet", DataFlags(), samples=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f"  {line}"
    assert lines[-2:] == ["Record 1:", "  x: ''"]


def test_missing_dates_of_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.array(["2020-01-01", "NaT"], "M8[D]"))
    with pytest.raises(UserError, match="values are missing in 'values'"):
        inspect_data("a.npy", DataFlags(), samples=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "  values: int64 (was datetime64[D], days, 1 missing); values 18262"
    assert lines[-2:] == ["Record 1:", "  values: ''"]


def test_ranges_and_different_values(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("a,b\n" + "".join(f"{number},{number % 7 / 2}\n" for number in range(5000)))
    inspect_data("a.csv", DataFlags(), samples=0)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  a: int64; 0 to 4999; more than 1,000 different values, such as 0, 1, 2, 3, 4",
        "  b: float64; 0.0 to 3.0; 7 different values, such as 0.0, 0.5, 1.0, 1.5, 2.0",
    ]


def test_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text('{"a": 1, "b": [1, 2]}\n{"b": []}\n')
    with pytest.raises(UserError, match="values are missing in 'a'"):
        inspect_data("a.jsonl", DataFlags(), samples=1, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["records"] == 2
    assert [column["name"] for column in facts["columns"]] == ["a", "b"]
    assert facts["columns"][1] == {
        "name": "b",
        "type": "list<int64>",
        "remark": "",
        "missing": 0,
        "least": 1,
        "greatest": 2,
        "lengths": [0, 2],
    }
    assert facts["samples"] == [{"a": "1.0", "b": "[1, 2]"}]
    assert "--column_types a=float64" in facts["problems"][0]["remedy"]


def test_types_of_several_files_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"x": [1], "y": [1]}), "a.parquet")
    pq.write_table(pa.table({"x": [[1]], "y": [2]}), "b.parquet")
    with pytest.raises(UserError, match=r"column 'x' is list<int64> in .*b\.parquet and int64"):
        inspect_data(".", DataFlags(), samples=1)
    assert "  y: int64; values 1, 2" in capsys.readouterr().out.splitlines()


def test_no_type_is_suggested_that_a_list_can_not_have() -> None:
    pq.write_table(pa.table({"l": [[1, None]]}), "a.parquet")
    with pytest.raises(UserError, match="--fill_missing l=-1") as refused:
        inspect_data("a.parquet", DataFlags(), samples=1)
    assert "--column_types" not in str(refused.value)
    Path("a.jsonl").write_text('{"l": [1, null]}\n')
    with pytest.raises(UserError, match="--column_types l=list<float64>"):
        inspect_data("a.jsonl", DataFlags(), samples=1)
    inspect_data("a.jsonl", DataFlags(column_types="l=list<float64>"), samples=1)


def test_one_column_with_another_delimiter_in_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("a;b\n1;2\n")
    inspect_data("a.csv", DataFlags(), samples=0)
    assert "There is only one column. If ';' separates the columns: --csv_delimiter=';'" in capsys.readouterr().out


def test_records_that_are_all_empty(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text("{}\n{}\n")
    inspect_data("a.jsonl", DataFlags(), samples=3)
    assert capsys.readouterr().out.splitlines() == [
        "a.jsonl: 2 records in 1 file (json), 6 bytes",
        "There are no columns: all records are empty.",
    ]


def test_lists_with_missing_values_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = pa.array([[1, None], [3, 4]], pa.list_(pa.int64(), 2))
    pq.write_table(pa.table({"a": pa.array([[1, None], []]), "b": pairs}), "a.parquet")
    with pytest.raises(UserError, match="values are missing in 'a'"):
        inspect_data("a.parquet", DataFlags(), samples=2)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  a: list<int64> (1 missing); 1 to 1; 0 to 2 values in a list",
        "  b: int64[2] (1 missing); 1 to 4",
        "Record 0:",
        "  a: ['1', '']",
        "  b: ['1', '']",
        "Record 1:",
        "  a: []",
        "  b: ['3', '4']",
    ]
