"""Readers of model files: what they may give, and what is said if they give something else."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.data.test_shard_readers import SPEC, STRIDE, TASK, checked, of_reader

from elasticdl.shared.data import PlannedData, ReaderOptions
from elasticdl.shared.data.custom import ReadTask, ShardRange, plan_reader
from elasticdl.shared.data.custom.exchange import PlanningRequest, read_planned, write_planned
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard


@dataclass
class Tables:
    """Named lists of records; ``shards`` are all of them unless given."""

    tables: dict[str, list[Any]]
    shards: Any = None
    asked: list[tuple[str, int, int]] = field(default_factory=list)

    def create_shards(self) -> Any:
        return self.shards or [(name, 0, len(records)) for name, records in self.tables.items()]

    def read_records(self, task: ReadTask) -> Any:
        shard = task.shard
        self.asked.append((shard.name, shard.start, shard.end))
        return iter(self.tables[shard.name][shard.start : shard.end])


def planned(reader: object, options: ReaderOptions | None = None, like: PlannedData | None = None) -> PlannedData:
    schema = like.schema if like else None
    return plan_reader(checked(reader), SPEC, options or ReaderOptions(), stride=STRIDE, schema=schema)


def refusal(reader: object, options: ReaderOptions | None = None) -> str:
    with pytest.raises(UserError) as refused:
        planned(reader, options)
    return str(refused.value)


def test_planning_reads_each_record_once_in_ranges_of_a_task() -> None:
    reader = Tables({"a": [b"x"] * (TASK + 3), "b": [b"y"]})
    data = planned(reader)
    assert reader.asked == [("a", 0, TASK), ("a", TASK, TASK + 3), ("b", 0, 1)]
    assert [(source.uri, source.records) for source in data.sources] == [("shard:a[0:15]", 15), ("shard:b[0:1]", 1)]


def test_shards_that_continue_each_other_are_one_source() -> None:
    reader = Tables({"a": [b"x"] * 30, "b": [b"y"] * 4}, [("a", 2, 5), ("a", 7, 3), ("b", 0, 4), ("a", 12, 8)])
    assert [source.uri for source in planned(reader).sources] == ["shard:a[2:10]", "shard:b[0:4]", "shard:a[12:20]"]


def test_columns_have_the_types_of_json_lines() -> None:
    records = [
        {"id": np.int32(3), "part": np.float32(0.5), "name": "Köln\n", "ok": True, "items": (1, 2), "far": None},
        {"id": 4, "part": float("nan"), "name": "b", "ok": False, "items": np.array([], int), "far": 2},
    ]
    data, read = of_reader(
        Tables({"a": records}), planned(Tables({"a": records}), ReaderOptions(fill_missing={"far": "-1"}))
    )
    kinds = dict(zip(data.schema.metadata.column_names, data.schema.metadata.column_types, strict=True))
    assert kinds == {
        "id": "int64", "part": "float64", "name": "string", "ok": "bool", "items": "list<int64>", "far": "int64"
    }  # fmt: skip
    columns = read(Shard(source=0, start=0, end=2)).columns
    assert columns["id"].tolist() == [3, 4] and columns["far"].tolist() == [-1, 2]
    assert columns["part"].tolist()[0] == 0.5 and np.isnan(np.asarray(columns["part"].tolist())[1])
    assert columns["name"].tolist() == ["Köln\n", "b"] and columns["ok"].tolist() == [True, False]
    assert data.remarks["far"] == "1 missing, filled with -1"


def test_validation_data_has_the_columns_of_the_training_data() -> None:
    training = planned(Tables({"a": [{"x": 1.5, "y": 1}]}))
    assert planned(Tables({"a": [{"y": 2, "x": 1, "z": "?"}]}), like=training).schema.columns == training.schema.columns
    with pytest.raises(UserError, match="reads dicts from 'table' and bytes or texts from 'table'"):
        planned(Tables({"a": [b"x"]}), like=training)


def test_texts_are_bytes() -> None:
    _, read = of_reader(Tables({"a": ["ü", "b"]}))
    assert read(Shard(source=0, start=0, end=2)).lines == ["ü".encode(), b"b"]


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        (7, "create_shards() of m.py returned int"),
        ("ab", "create_shards() of m.py returned str"),
        ([("a", 1)], "create_shards() of m.py gives ('a', 1)"),
        ([("a", 0, 1.5)], "create_shards() of m.py gives ('a', 0, 1.5)"),
        ([("a", 0, True)], "create_shards() of m.py gives ('a', 0, True)"),
        ([("a", -1, 3)], "gives shard 'a' from record -1 on"),
        ([("a", 2, 0)], "gives shard 'a' from record 2 on with 0 records"),
        ([("a", 0, 3), ("b", 0, 9), ("a", 2, 2)], "gives shards that overlap: records 0 to 2 and 2 to 3 of 'a'"),
    ],
)
def test_wrong_shards_are_refused(shards: Any, message: str) -> None:
    assert message in refusal(Tables({}, shards))


def test_no_shards_are_refused() -> None:
    assert "custom_data_reader('table') has no shards" in refusal(Tables({}))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([3], "record 0 of shard 'a' is of type int: 3"),
        ([{"x": 1}, ["1", "2"]], "record 1 of shard 'a' is of type list: ['1', '2']"),
        ([{1: 2}], "record 0 of shard 'a' has the key 1"),
        ([{"x": date(2024, 1, 2)}], "record 0 of shard 'a': column 'x' is of type date: datetime.date(2024, 1, 2)"),
        ([{"x": float("inf")}], "column 'x' is infinite"),
        ([{"x": {"y": 1}}], "column 'x' has nested values"),
        ([{"x": [[1, 2]]}], "column 'x' has nested values"),
        ([{"x": 1}, {"x": "a"}], "column 'x' is a string, and a number in records before it"),
        ([{"x": 1}, b"x"], "yields dicts and bytes or texts"),
        ([{"x": 1}] * TASK + [b"x"], "reads dicts and bytes or texts"),
    ],
)
def test_wrong_records_are_refused(records: list[Any], message: str) -> None:
    assert message in refusal(Tables({"a": records}))


@pytest.mark.parametrize(
    ("said", "there", "message"),
    [
        (9, 7, "was asked for 9 records, 0 to 8 of shard 'a', and yields only 7"),
        (20, 12, "was asked for 8 records, 12 to 19 of shard 'a', and yields only 0"),
    ],
)
def test_fewer_records_than_the_shard_said_are_refused(said: int, there: int, message: str) -> None:
    assert message in refusal(Tables({"a": [b"x"] * there}, [("a", 0, said)]))


class IgnoresRanges(Tables):
    """Always reads the whole table."""

    def read_records(self, task: ReadTask) -> Sequence[Any]:
        return self.tables[task.shard.name]


def test_more_records_than_asked_for_are_refused() -> None:
    message = refusal(IgnoresRanges({"a": [b"x"] * (TASK + 1)}))
    assert f"was asked for {TASK} records, 0 to {TASK - 1} of shard 'a', and yields more" in message


def test_an_object_without_the_methods_is_refused() -> None:
    assert refusal([1, 2]) == (
        "m.py: custom_data_reader() returned list, which has no create_shards()\n"
        "  Return an object with the methods create_shards() and read_records(task)."
    )


class ReturnsNothing(Tables):
    """Forgets to yield."""

    def read_records(self, task: ReadTask) -> None:
        return None


def test_a_reader_that_returns_nothing_is_refused() -> None:
    assert "read_records() of m.py returned NoneType" in refusal(ReturnsNothing({"a": [b"x"]}))


def test_flags_about_columns_need_columns() -> None:
    assert "--columns has no effect" in refusal(Tables({"a": [b"x"]}), ReaderOptions(columns=("x",)))


def test_each_thread_has_a_reader_of_its_own() -> None:
    made: list[Tables] = []

    def make() -> Tables:
        made.append(Tables({"a": [b"x"]}))
        return made[-1]

    reader = checked(None)
    reader._make = make
    part = ShardRange(name="a", start=0, end=1)
    for _ in range(2):
        reader.read(part)
    thread = threading.Thread(target=reader.read, args=(part,))
    thread.start()
    thread.join()
    assert [len(each.asked) for each in made] == [2, 1]


def test_the_launcher_gets_what_the_process_has_planned(tmp_path: Path) -> None:
    request = PlanningRequest(
        model="m.py",
        symbol="model",
        functions={"loss": "other_loss"},
        readers=(SPEC,),
        options=ReaderOptions(fill_missing={"x": "1"}),
        stride=4,
        seed=7,
    )
    request.write(tmp_path)
    assert PlanningRequest.read(tmp_path) == request
    data = planned(Tables({"a": [{"x": 1}], "b": [{"x": 2}, {"x": None}]}), request.options)
    write_planned(tmp_path, 3, data)
    read = read_planned(tmp_path, 3)
    assert (read.sources, read.schema.columns, read.schema.reader) == (data.sources, data.schema.columns, SPEC)
    assert read.remarks == data.remarks
    assert read.options == data.options
    assert all(one.has_content_of(other) for one, other in zip(read.indices, data.indices, strict=True))


def test_the_documented_reader_reads_a_database(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "data.md"
    *_, code = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    file = tmp_path / "orders.db"
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("create table orders(id int, day text, price real, items int, returned int)")
        rows = [(number, f"day {number % 2}", number / 4, number, number % 3) for number in range(40)]
        database.executemany("insert into orders values (?, ?, ?, ?, ?)", rows)
    reader = names["custom_data_reader"](str(file))
    data, read = of_reader(reader, planned(reader))
    assert [source.uri for source in data.sources] == ["shard:day 0[0:20]", "shard:day 1[0:20]"]
    assert data.schema.metadata.column_types == ("float64", "int64", "int64")
    assert read(Shard(source=1, start=3, end=6)).columns["items"].tolist() == [7, 9, 11]
    reader.database.close()


@pytest.mark.parametrize("name", ["a", "s3://b/c[1:2]", "a\nb", "", "shard:x[0:1]"])
def test_sources_name_their_shards(name: str) -> None:
    shard = ShardRange(name=name, start=3, end=12)
    assert ShardRange.of_uri(shard.uri) == shard
