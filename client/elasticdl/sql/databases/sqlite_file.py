"""A SQLite file, through Python's own driver, which reads it and nothing else."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases.port import (
    BATCH_ROWS,
    MARK,
    FoundTable,
    QueryError,
    check_columns,
    check_query,
    qualified,
    quoted,
    split_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
_TABLES = (
    "SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
    "ORDER BY name"
)
_SCHEMAS = ("", "main")
_BUSY_S = 10
_STEPS_UNINTERRUPTED = 1_000_000
"""Instructions of SQLite's virtual machine between two chances for Ctrl-C: some hundredths of a second."""
_COLUMNS_AT_ONCE = 200


class SQLiteFile:
    """A database in a file.

    SQLite's columns hold values of any type, so the type of a column is that of all values of the result: integers,
    numbers, texts or blobs. Columns with numbers and texts are texts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open(path, "ro")
        self._connection.execute("PRAGMA query_only = ON")
        self._connection.set_authorizer(_authorize)

    @property
    def url(self) -> str:
        """The path."""
        return str(self._path)

    def tables(self) -> list[str]:
        """See ``Database``."""
        with _query_errors():
            return [name for name, _, _ in self._connection.execute(_TABLES)]

    def find(self, table: str) -> FoundTable | None:
        """See ``Database``."""
        schema, plain = split_name(table.lower())
        wanted = {table.lower(), plain} if schema in _SCHEMAS else {table.lower()}
        with _query_errors():
            rows = self._connection.execute(_TABLES).fetchall()
            for name, kind, text in rows:
                if name.lower() not in wanted:
                    continue
                with closing(self._connection.execute(f"SELECT * FROM {quoted(name)} LIMIT 0")) as cursor:  # noqa: S608
                    columns = tuple(each[0] for each in cursor.description)
                return FoundTable(
                    reference=quoted(name),
                    columns=columns,
                    is_written=f"/* {MARK} */" in (text or ""),
                    obstacle="it is a view" if kind == "view" else "",
                )
        return None

    def schema(self, query: str) -> pa.Schema:
        """See ``Database``. Reads all rows, because only they have the types."""
        import pyarrow as pa

        names = self._names(query)
        kinds: list[pa.DataType] = []
        for start in range(0, len(names), _COLUMNS_AT_ONCE):
            kinds += self._types(query, names[start : start + _COLUMNS_AT_ONCE])
        return pa.schema(list(zip(names, kinds, strict=True)))

    def sources(self, query: str) -> frozenset[str]:
        """See ``Database``."""
        read = set[str]()

        def note(action: int, first: str | None, second: str | None, *_: object) -> int:
            if action == sqlite3.SQLITE_READ and first:
                read.add(quoted(first))
            return _authorize(action, first, second)

        # The open connection keeps statements, and asks about each of them once.
        with closing(_open(self._path, "ro")) as connection, _query_errors():
            connection.set_authorizer(note)
            connection.execute(f"{_wrapped(query)} LIMIT 0")
        return frozenset(read)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``."""
        import pyarrow as pa

        schema = self.schema(query)
        rows_max = max(64, min(BATCH_ROWS, 1_000_000 // max(1, len(schema))))
        convert = [_text if pa.types.is_string(each.type) else None for each in schema]
        with _query_errors(), closing(self._connection.execute(_wrapped(query))) as cursor:
            while rows := cursor.fetchmany(rows_max):
                columns = zip(*rows, strict=True)
                arrays = [
                    pa.array(values if make is None else map(make, values), each.type, size=len(rows))
                    for values, make, each in zip(columns, convert, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. Booleans are 0 and 1; dates, timestamps, decimals and lists are texts."""
        name = qualified(table) if not split_name(table)[0] else quoted(table)
        columns = ", ".join(f"{quoted(field.name)} {_declared(field.type)}" for field in schema)
        marks, rows = ", ".join("?" for _ in schema), 0
        with closing(_open(self._path, "rw")) as connection, _query_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f"DROP TABLE IF EXISTS {name}")
                connection.execute(f"CREATE TABLE {name} (/* {MARK} */ {columns})")
                for batch in batches:
                    values = zip(*(map(_stored, column.to_pylist()) for column in batch.columns), strict=True)
                    connection.executemany(f"INSERT INTO {name} VALUES ({marks})", values)  # noqa: S608 - quoted
                    rows += batch.num_rows
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite itself has ended it, for instance because the disk is full.
                    connection.execute("ROLLBACK")
                raise
        return rows

    def close(self) -> None:
        """See ``Database``."""
        self._connection.close()

    def _names(self, query: str) -> list[str]:
        with _query_errors(), closing(self._connection.execute(f"{_wrapped(query)} LIMIT 0")) as cursor:
            names = [each[0] for each in cursor.description]
        check_columns([_as_selected(name, names[:place]) for place, name in enumerate(names)])
        return names

    def _types(self, query: str, names: Sequence[str]) -> list[pa.DataType]:
        """Of some columns: one pass over the rows, in the database."""
        counted = ("integer", "real", "text", "blob")
        selected = [f"total(typeof({quoted(name)}) = '{kind}')" for name in names for kind in counted]
        text = f"SELECT {', '.join(selected)} FROM ({check_query(query)}\n)"  # noqa: S608 - quoted
        with _query_errors(), closing(self._connection.execute(text)) as cursor:
            row: tuple[float, ...] = cursor.fetchone()
        return [_type(*row[place * 4 : place * 4 + 4]) for place, _ in enumerate(names)]


def _as_selected(name: str, before: Sequence[str]) -> str:
    """A column's name in the query itself: outside of it, SQLite numbers columns that have one name (a, a:1)."""
    plain = re.sub(r":\d+$", "", name)
    return plain if plain in before else name


def _open(path: Path, mode: str) -> sqlite3.Connection:
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode={mode}"
        found = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise UserError(f"{path} can't be opened: {error}") from error
    # Python handles Ctrl-C between two of its own instructions, and a query is one of them.
    found.set_progress_handler(_continue, _STEPS_UNINTERRUPTED)
    return found


def _continue() -> int:
    """Called while a query runs. Ctrl-C raises an exception in it, and SQLite ends the query."""
    return 0


def _authorize(action: int, _: str | None, second: str | None, *__: object) -> int:
    """Whether a statement may do something: nothing but reading."""
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _wrapped(query: str) -> str:
    """The query as a part of a SELECT: no other statement is valid there."""
    return f"SELECT * FROM ({check_query(query)}\n)"  # noqa: S608 - the user's own SELECT


@contextmanager
def _query_errors() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error
        raise QueryError(f"the query fails: {error}") from error


def _type(integers: float, reals: float, texts: float, blobs: float) -> pa.DataType:
    import pyarrow as pa

    if blobs:
        return pa.binary() if not texts and not integers and not reals else pa.string()
    if texts:
        return pa.string()
    if reals:
        return pa.float64()
    return pa.int64() if integers else pa.null()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _declared(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) else "TEXT"


def _stored(value: Any) -> Any:
    """A value as SQLite holds it."""
    import json

    if value is None or isinstance(value, int | float | str | bytes):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat(" ") if hasattr(value, "hour") and hasattr(value, "year") else str(value)
