"""A Postgres database, through ADBC: results come as Arrow, some rows at a time."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases.port import (
    MARK,
    FoundTable,
    QueryError,
    check_columns,
    check_query,
    message_of,
    qualified,
    quoted,
    remembering,
    split_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = """
SELECT CASE WHEN table_schema = ANY (current_schemas(false)) THEN table_name::text
       ELSE table_schema || '.' || table_name END AS name
FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""
_FIND = """
SELECT n.nspname::text, c.relname::text, c.relkind::text, coalesce(obj_description(c.oid, 'pg_class'), ''),
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
        ORDER BY attnum),
  coalesce((SELECT v.relname::text FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
            JOIN pg_class v ON v.oid = r.ev_class
            WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = c.oid AND v.oid <> c.oid LIMIT 1), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (
  (lower(c.relname) = lower($1) AND n.nspname = ANY (current_schemas(false)))
  OR lower(n.nspname || '.' || c.relname) = lower($1))
ORDER BY n.nspname || '.' || c.relname = $1 DESC, c.relname = $1 DESC LIMIT 1
"""
_OBSTACLES = {"v": "it is a view", "m": "it is a materialized view", "f": "it is a foreign table"}
_READ_ONLY = "-c default_transaction_read_only=on"
_UNANSWERED = "no password supplied"
"""What the driver says if a server wants a password."""
_SECRET = ("password", "sslpassword", "sslkey", "passfile")
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
_BATCH_BYTES_MAX = 2 << 20
_DIGITS_MAX = 38
_COLUMNS_AT_ONCE = 200


class PostgresDatabase:
    """A database of a server.

    Args:
        uri: ``postgresql://...``. A password may be in it; better is ``PGPASSWORD``, ``~/.pgpass`` or a service file.
            No message has more than ``url``.
        ask: asks the user for the password if the server wants one and there is none; None: the connection fails.

    Raises:
        UserError: there is no driver, or no such server or database.
    """

    def __init__(self, uri: str, ask: Callable[[str], str] | None = None) -> None:
        self.url = without_credentials(uri)
        self._uri = uri
        try:
            self._connection = self._read_only()
        except UserError as error:
            if ask is None or _UNANSWERED not in str(error):
                raise
            self._uri = _with(uri, password=ask(f"Password for {self.url}: "))
            self._connection = self._read_only()

    def tables(self) -> list[str]:
        """See ``Database``."""
        return [str(name) for name in self._rows(_TABLES).column(0).to_pylist()]

    def find(self, table: str) -> FoundTable | None:
        """See ``Database``."""
        rows = self._rows(_FIND, (table,))
        if not rows.num_rows:
            return None
        schema, name, kind, comment, columns, view = (column[0].as_py() for column in rows.columns)
        return FoundTable(
            reference=f"{quoted(schema)}.{quoted(name)}",
            columns=tuple(columns),
            is_written=comment == MARK,
            obstacle=_OBSTACLES.get(kind, f"the view {view} depends on it" if view else ""),
        )

    def schema(self, query: str) -> pa.Schema:
        """See ``Database``. Numbers of type ``numeric`` are decimals with the digits that the rows need."""
        return self._plan(query)[1]

    def sources(self, query: str) -> frozenset[str]:
        """See ``Database``. None are looked for: a table that views depend on is not replaced, see ``find``."""
        del query
        return frozenset()

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``."""
        text, schema = self._plan(query)
        with self._transaction() as cursor:
            cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(_BATCH_BYTES_MAX)})
            cursor.execute(text)
            for batch in cursor.fetch_record_batch():
                yield _cast(batch, schema)

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. One transaction makes the table and replaces the former one."""
        import pyarrow as pa

        stored = pa.schema([field.with_type(_stored_type(field.type)) for field in schema])
        problems: list[BaseException] = []
        with closing(self._connect(self._uri)) as connection, closing(connection.cursor()) as cursor:
            rows = remembering(batches, problems)
            reader = pa.RecordBatchReader.from_batches(stored, (_cast(batch, stored) for batch in rows))
            try:
                with _query_errors():
                    return _replace(connection, cursor, table, schema, reader)
            except QueryError:
                if problems:  # The driver only has its text.
                    raise problems[0] from None
                raise

    def close(self) -> None:
        """See ``Database``."""
        self._connection.close()

    def _read_only(self) -> Any:
        given = dict(parse_qsl(urlsplit(self._uri).query)).get("options", "")
        return self._connect(_with(self._uri, options=f"{given} {_READ_ONLY}".strip()))

    def _connect(self, uri: str) -> Any:
        try:
            import adbc_driver_postgresql.dbapi as driver
        except ModuleNotFoundError as error:
            hint = "Install it: pip install 'elasticdl[sql]'."
            raise UserError("Postgres needs the package adbc-driver-postgresql", hint=hint) from error
        try:
            return driver.connect(uri)
        except driver.Error as error:
            raise UserError(f"{self.url}: no connection: {message_of(error)}") from error

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A read-only transaction, which is always rolled back."""
        with closing(self._connection.cursor()) as cursor, _query_errors():
            try:
                cursor.execute("SET TRANSACTION READ ONLY")
                yield cursor
            finally:
                self._connection.rollback()

    def _rows(self, text: str, parameters: Sequence[Any] = ()) -> pa.Table:
        with self._transaction() as cursor:
            cursor.execute(text, parameters or None)
            return cursor.fetch_arrow_table()

    def _plan(self, query: str) -> tuple[str, pa.Schema]:
        """A SELECT that casts what Arrow has no type for, and the types that its rows get."""
        import pyarrow as pa

        text = f"SELECT * FROM ({check_query(query)}\n) AS q"  # noqa: S608 - the user's own SELECT
        with self._transaction() as cursor:
            given = cursor.adbc_execute_schema(text)
        check_columns(given.names)
        kinds = {field.name: _type_name(field.type) for field in given}
        decimals = self._decimals(text, [name for name, kind in kinds.items() if kind == "numeric"])
        fields, selected = [], []
        for field in given:
            kind, column = kinds[field.name], quoted(field.name)
            if kind == "numeric":
                found = decimals[field.name]
                cast = "text" if pa.types.is_decimal(found) else "double precision"
                selected.append(f"{column}::{cast} AS {column}")
                fields.append(pa.field(field.name, found))
            elif kind:
                selected.append(f"{column}::text AS {column}")
                fields.append(pa.field(field.name, pa.string()))
            else:
                selected.append(column)
                fields.append(pa.field(field.name, field.type))
        return f"SELECT {', '.join(selected)} FROM ({text}) AS r", pa.schema(fields)  # noqa: S608

    def _decimals(self, text: str, names: Sequence[str]) -> dict[str, pa.DataType]:
        """The narrowest types that hold all values of columns of type ``numeric``."""
        import pyarrow as pa

        found: dict[str, pa.DataType] = {}
        for start in range(0, len(names), _COLUMNS_AT_ONCE):
            part = names[start : start + _COLUMNS_AT_ONCE]
            selected = []
            for column in map(quoted, part):
                whole = f"max(length(trunc(abs({column}))::text))"
                special = f"bool_or({column}::text IN ('NaN', 'Infinity', '-Infinity'))"
                selected += [f"max(scale({column}))", whole, f"coalesce({special}, false)"]
            row = [one[0].as_py() for one in self._rows(f"SELECT {', '.join(selected)} FROM ({text}) AS d").columns]  # noqa: S608
            for place, name in enumerate(part):
                scale, digits, is_special = row[place * 3 : place * 3 + 3]
                width = (digits or 1) + (scale or 0)
                fits = not is_special and width <= _DIGITS_MAX
                found[name] = pa.decimal128(max(width, 1), scale or 0) if fits else pa.float64()
        return found


def _replace(connection: Any, cursor: Any, table: str, schema: pa.Schema, reader: pa.RecordBatchReader) -> int:
    """Fill a new table and give it the name of the former one, in one transaction."""
    import pyarrow as pa

    target, name = split_name(table)
    staging = f"elasticdl_{secrets.token_hex(8)}"
    rows = int(cursor.adbc_ingest(staging, reader, mode="create"))
    for field in schema:
        if pa.types.is_decimal(field.type):
            column = quoted(field.name)
            kind = f"numeric USING {column}::numeric"
            cursor.execute(f"ALTER TABLE {quoted(staging)} ALTER COLUMN {column} TYPE {kind}")
    if target:
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(target)}")
        cursor.execute(f"ALTER TABLE {quoted(staging)} SET SCHEMA {quoted(target)}")
    cursor.execute(f"DROP TABLE IF EXISTS {qualified(table)}")
    moved = ".".join(quoted(part) for part in (target, staging) if part)
    cursor.execute(f"ALTER TABLE {moved} RENAME TO {quoted(name)}")
    cursor.execute(f"COMMENT ON TABLE {qualified(table)} IS '{MARK}'")
    connection.commit()
    return rows


def without_credentials(uri: str) -> str:
    """An address without user, password and secret parameters."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in (*_SECRET, "user", "options")]
    return urlunsplit((parts.scheme, host, parts.path, urlencode(kept), ""))


def _with(uri: str, **parameters: str) -> str:
    """An address with parameters of its connections."""
    parts = urlsplit(uri)
    given = {**dict(parse_qsl(parts.query)), **parameters}
    query = urlencode(given, quote_via=quote)  # Postgres reads "+" as a plus sign.
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


@contextmanager
def _query_errors() -> Iterator[None]:
    import adbc_driver_manager

    try:
        yield
    except adbc_driver_manager.Error as error:
        raise QueryError(f"the query fails: {message_of(error)}") from error


def _type_name(kind: pa.DataType) -> str:
    """The name of a type of Postgres that Arrow has not; empty: Arrow has it."""
    return str(getattr(kind, "type_name", "") or "")


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is sent: decimals as texts, and what Postgres has no type for as well."""
    import pyarrow as pa

    types = pa.types
    if types.is_decimal(kind) or types.is_null(kind) or types.is_struct(kind) or types.is_map(kind):
        return pa.string()
    if types.is_unsigned_integer(kind) or types.is_int8(kind):
        return pa.int64()
    return kind


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        stored = column.storage if isinstance(column, pa.ExtensionArray) else column
        arrays.append(stored if stored.type == field.type else stored.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
