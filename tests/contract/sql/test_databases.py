"""What every database promises."""

from __future__ import annotations

import datetime
import decimal
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pytest
from tests.contract.sql.injections import INJECTIONS

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases import Database
from elasticdl.sql.databases.engine import query_errors
from elasticdl.sql.databases.port import QueryError, qualified

Foreign: TypeAlias = Callable[..., None]
ROWS = pa.table(
    {
        "id": pa.array([1, 2**62 + 1, -5], pa.int64()),
        "Größe in m": pa.array([1.5, None, -0.25], pa.float64()),
        'say "hi"': pa.array(["ä", "", None], pa.string()),
        "on": pa.array([datetime.date(2020, 2, 29), None, datetime.date(1969, 12, 31)], pa.date32()),
        "price": pa.array([decimal.Decimal("12.50"), decimal.Decimal("-0.01"), None], pa.decimal128(9, 2)),
        "good": pa.array([True, False, None], pa.bool_()),
    }
)


def columns(database: Database, name: str) -> list[str]:
    found = database.find(name)
    return list(found.columns) if found else []


def write(database: Database, name: str = "things", rows: pa.Table = ROWS) -> int:
    return database.write(name, rows.schema, rows.to_batches())


def read(database: Database, query: str) -> pa.Table:
    return pa.Table.from_batches(database.batches(query), database.schema(query))


def test_a_table_is_read_as_it_was_written(database: Database, kind: str) -> None:
    assert write(database) == 3
    assert "things" in database.tables()
    assert columns(database, "things") == ROWS.column_names
    found = read(database, "SELECT * FROM things")
    expected = {name: ROWS.column(name).to_pylist() for name in ROWS.column_names}
    if kind == "sqlite":  # It has no such types.
        expected["on"] = [each and each.isoformat() for each in expected["on"]]
        expected["price"] = [None if each is None else str(each) for each in expected["price"]]
        expected["good"] = [None if each is None else int(each) for each in expected["good"]]
    assert {name: found.column(name).to_pylist() for name in found.column_names} == expected


def test_a_query_of_any_shape_is_one_result(database: Database) -> None:
    write(database)
    query = """
        WITH picked AS (SELECT id, price FROM things WHERE id > 0)  -- a comment
        SELECT a.id, row_number() OVER (ORDER BY a.id DESC) AS place, b.price
        FROM picked a JOIN things b ON a.id = b.id ORDER BY a.id -- and one at the end
    """
    assert read(database, query).column("place").to_pylist() == [2, 1]


def test_a_table_is_replaced_whole_or_not_at_all(database: Database) -> None:
    write(database)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from pa.table({"a": [1, 2]}).to_batches()
        raise RuntimeError("the job's output is gone")

    with pytest.raises(RuntimeError, match="gone"):
        database.write("things", pa.schema([("a", pa.int64())]), broken())
    assert columns(database, "things") == ROWS.column_names
    assert write(database, rows=pa.table({"a": [7]})) == 1
    assert read(database, "SELECT * FROM things").to_pydict() == {"a": [7]}


@pytest.mark.parametrize("statement", INJECTIONS)
def test_nothing_but_one_select_is_run(database: Database, statement: str) -> None:
    write(database)
    with pytest.raises(QueryError):
        read(database, statement)
    assert read(database, "SELECT count(*) AS n FROM things").to_pydict() == {"n": [3]}
    assert columns(database, "other") == []


def test_names_are_quoted_and_never_parsed(database: Database, kind: str) -> None:
    name = 'odd "name"' if kind == "folder" else 'odd "name"; DROP TABLE things; --'
    write(database)
    write(database, name, pa.table({'a"; DROP TABLE things; --': [1]}))
    assert read(database, f"SELECT * FROM {qualified(name)}").num_rows == 1
    assert read(database, "SELECT count(*) AS n FROM things").to_pydict() == {"n": [3]}


def test_errors_say_what_the_database_says(database: Database) -> None:
    with pytest.raises(UserError, match=r"no_such_table"):
        database.schema("SELECT * FROM no_such_table")
    with pytest.raises(UserError, match=r"two columns with the name 'a'"):
        database.schema("SELECT 1 AS a, 2 AS a")


def test_a_result_without_rows_has_types(database: Database) -> None:
    write(database)
    found = read(database, "SELECT id, good FROM things WHERE id = 0")
    assert (found.column_names, found.num_rows) == (["id", "good"], 0)


def test_rows_come_in_parts(database: Database) -> None:
    many = pa.table({"n": list(range(50_000)), "text": [f"{number:0100}" for number in range(50_000)]})
    write(database, "many", many)
    parts = list(database.batches("SELECT * FROM many"))
    assert sum(part.num_rows for part in parts) == 50_000
    assert max(part.num_rows for part in parts) < 50_000


def test_lists_can_be_written(database: Database, kind: str) -> None:
    rows = pa.table({"p": pa.array([[0.25, 0.75], [1.0, 0.0]], pa.list_(pa.float64())), "t": [["ä"], []]})
    write(database, rows=rows)
    found = read(database, "SELECT * FROM things").to_pydict()
    assert found == (
        {"p": ["[0.25, 0.75]", "[1.0, 0.0]"], "t": ['["ä"]', "[]"]} if kind == "sqlite" else rows.to_pydict()
    )


def test_tables_are_found_with_what_is_known_of_them(database: Database, kind: str) -> None:
    assert database.find("fresh") is None
    write(database, "fresh")
    found = database.find("FRESH")
    assert found is not None
    assert (found.is_written, found.obstacle) == (True, "")
    assert read(database, f"SELECT * FROM {found.reference}").num_rows == 3
    write(database, "fresh")
    assert database.find("fresh") == found
    assert kind == "folder" or database.find("main.public.fresh") is None


def test_a_table_of_another_program_and_a_view_are_told_apart(kind: str, database: Database, foreign: Foreign) -> None:
    foreign("CREATE TABLE theirs AS SELECT 1 AS a", "CREATE VIEW seen AS SELECT * FROM theirs")
    theirs, seen = database.find("theirs"), database.find("seen")
    assert theirs is not None
    assert seen is not None
    assert not theirs.is_written
    assert seen.obstacle == "it is a view"
    assert theirs.obstacle == ("the view seen depends on it" if kind == "postgres" else "")


def test_a_name_with_a_dot_is_found(kind: str, database: Database, foreign: Foreign) -> None:
    foreign('CREATE TABLE "a.b" AS SELECT 1 AS a')
    found = database.find("a.b")
    assert found is not None
    assert (found.columns, found.reference.endswith('"a.b"')) == (("a",), True), kind
    assert "a.b" in database.tables()


def test_the_tables_behind_views_are_sources(kind: str, database: Database, foreign: Foreign) -> None:
    if kind == "postgres":
        pytest.skip("it replaces no table that a view depends on")
    foreign("CREATE TABLE theirs AS SELECT 1 AS a", 'CREATE TABLE "a.b" AS SELECT 2 AS a')
    foreign(
        "CREATE VIEW seen AS SELECT * FROM theirs",
        'CREATE VIEW seen_twice AS SELECT * FROM seen UNION ALL SELECT * FROM "a.b"',
    )
    for query in ("SELECT * FROM seen_twice", "WITH x AS (SELECT * FROM seen_twice) SELECT count(*) AS n FROM x"):
        database.schema(query)
        assert {name.strip('"') for name in database.sources(query)} - {"seen", "seen_twice"} == {"theirs", "a.b"}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "folder"])
def test_ctrl_c_ends_a_query(kind: str, database: Database) -> None:
    list(database.batches("SELECT 1 AS a"))  # Everything is imported.
    query = (
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 30000000) SELECT max(i) AS m FROM c"
    )
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # A process in the background ignores the signal.
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()  # In the block: on a busy machine the time may be over before the query begins.
            list(database.batches(query))
    finally:
        signal.signal(signal.SIGINT, former)
    assert [batch.num_rows for batch in database.batches("SELECT 1 AS a")] == [1]


def test_an_interrupted_query_of_duckdb_is_an_interrupt() -> None:
    """A real signal may find DuckDB in a long part of a query, which it finishes first."""
    for error in (RuntimeError("Query interrupted"), duckdb.InterruptException("Interrupted!")):
        with pytest.raises(KeyboardInterrupt), query_errors():
            raise error
    with pytest.raises(RuntimeError, match="else"), query_errors():
        raise RuntimeError("something else")
