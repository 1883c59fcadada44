"""Opens the database that ``--database`` names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from elasticdl.shared.errors import UserError, file_errors
from elasticdl.sql.databases.port import Database

POSTGRES = ("postgresql://", "postgres://")
_SQLITE_MAGIC = b"SQLite format 3\0"
_DUCKDB_MAGIC, _DUCKDB_MAGIC_OFFSET = b"DUCK", 8
_SQLITE_SUFFIXES = {".sqlite", ".sqlite3", ".db"}
_KINDS = "Give a DuckDB file, a SQLite file, a folder of Parquet, CSV or JSON files, or postgresql://HOST/DATABASE."


def open_database(text: str = "", ask: Callable[[str], str] | None = None) -> Database:
    """Open a database read-only.

    Args:
        text: a DuckDB or SQLite file, which may be new, a folder, or ``postgresql://...``; empty: the shipped tables.
        ask: asks the user for a password that a server wants; None: it is an error.

    Raises:
        UserError: there is none, or its driver is not installed.
    """
    if text.startswith(POSTGRES):
        from elasticdl.sql.databases.postgres import PostgresDatabase

        return PostgresDatabase(text, ask)
    if "://" in text:
        raise UserError(f"--database={text.partition('://')[0]}://...: no such kind of database", hint=_KINDS)
    if not text:
        from elasticdl.sql.databases.folder import FolderDatabase
        from elasticdl.sql.shipped import shipped_tables

        return FolderDatabase(results_folder(), tables=shipped_tables(), url="shipped tables")
    path = Path(text).expanduser()
    if path.is_dir():
        from elasticdl.sql.databases.folder import FolderDatabase

        return FolderDatabase(path)
    return _open_file(path)


def results_folder() -> Path:
    """Where tables go that statements write without a ``--database``."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "elasticdl" / "tables"


def _open_file(path: Path) -> Database:
    from elasticdl.sql.databases.duckdb_file import DuckDBFile
    from elasticdl.sql.databases.sqlite_file import SQLiteFile

    if not path.exists():
        raise UserError(f"--database={path}: there is no such file or folder", hint=_KINDS)
    with file_errors(f"--database={path} can't be read"), path.open("rb") as file:
        head = file.read(32)
    if head.startswith(_SQLITE_MAGIC) or (not head and path.suffix in _SQLITE_SUFFIXES):
        return SQLiteFile(path)
    if head[_DUCKDB_MAGIC_OFFSET:].startswith(_DUCKDB_MAGIC):
        return DuckDBFile(path)
    raise UserError(f"--database={path} is neither a DuckDB file nor a SQLite file", hint=_KINDS)
