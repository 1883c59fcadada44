"""Databases that are files: names without case, empty files, and when a file is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases import Database, open_database

ONE, TWO = pa.table({"a": [1]}), pa.table({"a": [2]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables = tmp_path / "tables"
    tables.mkdir()
    return tables


def write(database: Database, table: str, rows: pa.Table) -> None:
    assert database.write(table, rows.schema, iter(rows.to_batches())) == rows.num_rows


def values(database: Database, table: str) -> list[int]:
    return [row for batch in database.batches(f"SELECT a FROM {table}") for row in batch.column(0).to_pylist()]


def opened(folder: Path) -> Iterator[Database]:
    database = open_database(str(folder))
    yield database
    database.close()


def test_a_table_of_a_folder_is_replaced_whatever_the_case_of_its_name(folder: Path) -> None:
    for database in opened(folder):
        write(database, "guesses", ONE)
        write(database, "GUESSES", TWO)
        assert [each.name for each in folder.iterdir()] == ["guesses.parquet"]
        assert (database.tables(), values(database, "Guesses")) == (["guesses"], [2])


def test_an_empty_file_is_no_table_with_a_column(folder: Path) -> None:
    (folder / "nothing.csv").write_bytes(b"")
    (folder / "blank.csv").write_text("\n \n")
    (folder / "days").mkdir()
    (folder / "days" / "1.csv").write_text("")
    (folder / "days" / "2.csv").write_text("a\n3\n")
    for database in opened(folder):
        for name in ("nothing", "blank"):
            with pytest.raises(UserError, match=f"the table '{name}' can't be read from .*{name}.csv: it is empty"):
                database.schema(f"SELECT * FROM {name}")
        assert values(database, "days") == [3]


def test_a_duckdb_file_is_open_only_while_it_is_read_or_written(tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    duckdb.connect(str(file)).close()
    database = open_database(str(file))
    write(database, "t", ONE)
    with duckdb.connect(str(file)) as other:  # It would be refused if the file were still open here for reading.
        other.execute("INSERT INTO t VALUES (2)")
    assert values(database, "t") == [1, 2]
    database.close()
