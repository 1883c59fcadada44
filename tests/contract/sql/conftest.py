"""The three kinds of databases, each with an open one that tests may write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
