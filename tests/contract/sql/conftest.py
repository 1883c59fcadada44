"""The three kinds of databases, each with an open one that tests may write to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.servers.fixtures import postgres_server
from tests.contract.servers.postgres import PASSWORD, PostgresServer

from elasticdl.sql.databases import Database, open_database

__all__ = ["postgres_server"]
KINDS = ("duckdb", "folder", "sqlite", "postgres")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    opened = opener(kind, tmp_path, request, monkeypatch)()
    yield opened
    opened.close()


def opener(
    kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Database]:
    """Opens the same database again and again."""
    address = str(folder / "tables")
    match kind:
        case "duckdb":
            import duckdb

            duckdb.connect(address).close()
        case "folder":
            (folder / "tables").mkdir()
        case "sqlite":
            (folder / "tables.sqlite").touch()
            address = str(folder / "tables.sqlite")
        case _:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            monkeypatch.setenv("PGPASSWORD", PASSWORD)
            address = server.url
    return lambda: open_database(address)


@pytest.fixture
def foreign(
    kind: str, tmp_path: Path, database: Database, request: pytest.FixtureRequest
) -> Iterator[Callable[..., None]]:
    """Another program, which runs statements in the same database. A folder has none."""
    if kind == "folder":
        pytest.skip("the files of a folder are tables, and no views")

    def run(*statements: str) -> None:
        match kind:
            case "duckdb":
                import duckdb

                database.close()
                with duckdb.connect(str(tmp_path / "tables")) as connection:
                    for statement in statements:
                        connection.execute(statement)
                database.__init__(tmp_path / "tables")  # type: ignore[misc]
            case "sqlite":
                with closing(sqlite3.connect(tmp_path / "tables.sqlite")) as file, file:
                    for statement in statements:
                        file.execute(statement)
            case _:
                run_in_postgres(request.getfixturevalue("postgres_server"), statements)

    yield run
    if kind == "postgres":
        run_in_postgres(request.getfixturevalue("postgres_server"), ['DROP TABLE IF EXISTS theirs, "a.b" CASCADE'])


def run_in_postgres(server: PostgresServer, statements: Sequence[str]) -> None:
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(server.url_with_password) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()
