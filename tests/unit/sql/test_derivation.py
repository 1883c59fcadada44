"""Which columns of a result become features, how, and what is said of the others."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.sql.statements_for_tests import prepare, reasons, statement, uses

from elasticdl.shared.errors import UserError
from elasticdl.sql.columns.features import PACKED, Features
from elasticdl.sql.databases import open_database
from elasticdl.sql.preparation import PreparedTraining, prepare_training

N = 60
Y = [float(number) for number in range(N)]
DAY = datetime.date(2020, 1, 1)


def rows(**columns: list[Any] | pa.Array) -> pa.Table:
    return pa.table({**columns, "y": Y})


def features(prepared: PreparedTraining) -> Features:
    return Features.of_json(prepared.features.read_text())


@pytest.mark.parametrize(
    ("values", "use", "reason"),
    [
        ([number % 7 for number in range(N)], "number", "integer: scaled"),
        (Y, "number", "number: scaled"),
        ([number % 3 == 0 for number in range(N)], "number", "boolean: 0 or 1"),
        (["ab"[number % 2] for number in range(N)], "one-hot of 4", "text: vocabulary of 2"),
        ([f"w{number % 20}" for number in range(N)], "embedding of", "text: vocabulary of 20"),
        ([DAY + datetime.timedelta(number) for number in range(N)], "date", "date: trend, time of year and weekday"),
        ([datetime.datetime(2020, 1, 1 + number % 28, number % 24) for number in range(N)], "date", "timestamp: trend"),
        ([decimal.Decimal(number) / 4 for number in range(N)], "number", "decimal: scaled"),
        ([[1.0, float(number)] for number in range(N)], "vector of 2", "list of 2 numbers: scaled"),
        ([["a", "b"][: number % 3] for number in range(N)], "one-hot of 4", "list of texts"),
        ([f"2020-01-{1 + number % 28:02}" for number in range(N)], "date", "texts that are dates"),
        ([f"{number / 4}" for number in range(N)], "number", "texts that are numbers: scaled"),
        ([f"{number % 30:05}" for number in range(N)], "embedding of", "text: vocabulary of 30"),
        ([2**53 + 1 + number % 2 for number in range(N)], "one-hot of 4", "integer beyond 2^53"),
        ([None] * N, "left out", "it has no values: every row is NULL"),
        ([5] * N, "left out", "it is constant: every row has the same value"),
        (list(range(N)), "left out", "it is like an id: an integer that differs in every row"),
        ([f"name {number}" for number in range(N)], "left out", "it is like an id or a name"),
        ([f"name {number // 2 * 2 + 1}" for number in range(N - 5)] + ["x"] * 5, "embedding", "vocabulary"),
        (
            [f"name {min(number, 50)}" for number in range(N)],
            "left out",
            "it is like a name: 51 different texts in 60 rows",
        ),
        ([[1.0] * (1 + number % 2) for number in range(N)], "left out", "it is a list of 1 to 2 numbers"),
        ([{"a": 1, "b": number} for number in range(N)], "left out", "is not supported: select an expression"),
        ([None if number == 3 else number % 9 for number in range(N)], "number", "1 NULL, marked by another number"),
    ],
)
def test_a_column_is_used_by_its_type_and_values(tmp_path: Path, values: list[Any], use: str, reason: str) -> None:
    prepared = prepare(tmp_path, rows(x=values, other=[number % 5 for number in range(N)]), statement())
    assert uses(prepared)["x"].startswith(use)
    assert reason in reasons(prepared)["x"]


def test_ids_by_their_names_are_left_out_and_codes_are_categories(tmp_path: Path) -> None:
    some = [number % 6 for number in range(N)]
    prepared = prepare(tmp_path, rows(id=some, user_id=some, zip=some, shopId=some, paid=some), statement())
    found = uses(prepared)
    assert found.pop("y") == "label"
    assert found == dict.fromkeys(["user_id", "zip", "shopId"], "one-hot of 8") | {"id": "left out", "paid": "number"}


def test_a_table_of_one_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the SELECT has one row, so there is nothing to learn"):
        prepare(tmp_path, pa.table({"a": [1.5], "y": [2.5]}), statement())


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"a": [1, 2], "y": ["x", "x"]}, r"the same value in all 2 rows, so there is nothing to learn"),
        (
            {"a": [1, 2, 3], "y": [1.0, None, float("nan")]},
            r'NULL in 2 rows of 3\n.*WHERE "y" BETWEEN -1e308 AND 1e308',
        ),
        ({"a": [1, 2], "y": ["x", None]}, r'NULL in 1 row of 2\n  Leave them out: ... WHERE "y" IS NOT NULL'),
        ({"a": [None, None], "y": [1.0, 2.0]}, r"no column is left to learn from \(.*a: it has no values"),
        ({"y": [1.0, 2.0]}, r"no column is left"),
        ({"a": range(10), "y": list("abcdefghij")}, r"'y' has another text in each of the 10 rows"),
        ({"a": [1], "y": [[1, 2]]}, r"is list<.*, and a label is a number or a class"),
        ({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, r"the SELECT has no rows"),
    ],
)
def test_data_that_can_not_be_learned_is_refused_in_a_sentence(tmp_path: Path, table: Any, says: str) -> None:
    with pytest.raises(UserError, match=f"(?s){says}"):
        prepare(tmp_path, pa.table(table), statement())


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["no", "yes"], "classification"),
        ([False, True], "classification"),
        ([3, 7, 9], "classification"),
        ([0.5, 1.5, 2.5], "regression"),
        (list(range(30)), "regression"),
    ],
)
def test_the_label_decides_between_classes_and_a_number(tmp_path: Path, values: list[Any], task: str) -> None:
    table = pa.table({"a": [number % 4 for number in range(N)], "y": [values[n % len(values)] for n in range(N)]})
    prepared = prepare(tmp_path, table, statement())
    assert prepared.task == task
    label = features(prepared).label
    assert label.classes == (tuple(str(value).lower() for value in values) if task == "classification" else ())
    numbers = pq.read_table(prepared.training_data).column("y").to_pylist()
    assert set(numbers) <= (set(range(len(values))) if task == "classification" else set(map(float, values)))


def test_ten_thousand_classes_are_trained_and_more_are_refused(tmp_path: Path) -> None:
    def table(classes: int) -> pa.Table:
        rows = range(classes + 1)  # Two rows have the same label.
        return pa.table({"a": [number % 9 for number in rows], "y": [f"c{number % classes}" for number in rows]})

    assert len(features(prepare(tmp_path, table(10_000), statement())).label.classes) == 10_000
    with pytest.raises(UserError, match="has 10,001 classes, the limit is 10,000"):
        prepare(tmp_path, table(10_001), statement())


def test_hundreds_of_columns_are_prepared(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        f"c{number}": [float(number * place % 7) for place in range(30)] for number in range(1, 181)
    }
    columns |= {f"t{number}": [f"v{(number + place) % 4}" for place in range(30)] for number in range(60)}
    prepared = prepare(tmp_path, pa.table({**columns, "y": Y[:30]}), statement())
    constant = 180 // 7  # c7, c14 ... are 0 in every row.
    assert len(features(prepared).inputs) == 240 - constant
    data, packed = pq.read_table(prepared.training_data), features(prepared).packed
    assert len(packed) == 180 - constant
    assert data.num_columns == 62  # 60 texts, the label, and all numbers as one vector.
    assert {len(each) for each in data.column(PACKED).to_pylist()} == {len(packed)}


def test_names_in_any_language_and_large_ids_are_kept_exactly(tmp_path: Path) -> None:
    ids = [2**62 + 1 + number % 3 for number in range(N)]
    table = rows(**{"größe (cm)": [number % 9 for number in range(N)], "größe [cm]": Y, 'a "b"/c': ids, "名": ids})
    prepared = prepare(tmp_path, table, statement())
    names = [one.name for one in features(prepared).inputs]
    assert names == ["gr_e_cm", "gr_e_cm_2", "a_b_c", "column"]
    assert set(pq.read_table(prepared.training_data).column("a_b_c").to_pylist()) == {str(each) for each in ids}


def test_features_are_the_same_after_a_round_trip(tmp_path: Path) -> None:
    found = features(
        prepare(tmp_path, rows(a=["x", "y"] * 30, b=Y, c=[[1.0, 2.0]] * 30 + [[2.0, 1.0]] * 30), statement())
    )
    assert Features.of_json(found.as_json()) == found


@pytest.mark.parametrize("name", ["shop.sqlite", "shop.duckdb"])
def test_the_condition_that_leaves_out_rows_without_a_label_works(tmp_path: Path, name: str) -> None:
    """In each database: SQLite has no isfinite()."""
    connect = sqlite3.connect if name.endswith("sqlite") else duckdb.connect
    connection: Any = connect(str(tmp_path / name))
    connection.execute("CREATE TABLE things (a DOUBLE, y DOUBLE)")
    connection.executemany(
        "INSERT INTO things VALUES (?, ?)", [(1.5, 1.5), (2.5, None), (0.5, float("inf")), (3, -2.5)]
    )
    connection.commit()
    connection.close()
    database = open_database(str(tmp_path / name))
    with pytest.raises(UserError) as refused:
        prepare_training(statement(), database, tmp_path, say=lambda _: None)
    query = "SELECT y FROM things " + str(refused.value).partition("... ")[2]
    assert [row["y"] for batch in database.batches(query) for row in batch.to_pylist()] == [1.5, -2.5]
    database.close()
