"""A DuckDB file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.sql.databases import engine
from elasticdl.sql.databases.port import BATCH_ROWS, qualified, split_name

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = """
SELECT CASE WHEN table_schema = 'main' THEN table_name ELSE table_schema || '.' || table_name END AS name
FROM information_schema.tables WHERE table_catalog = current_database() ORDER BY name
"""
_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_catalog = current_database() AND lower(table_name) = lower(?) AND lower(table_schema) = lower(?)
ORDER BY ordinal_position
"""


class DuckDBFile:
    """A database in a file. It is opened for writing only while a table is written.

    Raises:
        UserError: it can't be opened, for instance because another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = self._open()

    @property
    def url(self) -> str:
        """The path."""
        return str(self._path)

    def tables(self) -> list[str]:
        """See ``Database``."""
        return [name for (name,) in self._connection.execute(_TABLES).fetchall()]

    def columns(self, table: str) -> list[str]:
        """See ``Database``."""
        schema, name = split_name(table)
        return [column for (column,) in self._connection.execute(_COLUMNS, [name, schema or "main"]).fetchall()]

    def schema(self, query: str) -> pa.Schema:
        """See ``Database``."""
        relation = engine.select(self._connection, query)
        return engine.arrow_schema(relation)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``."""
        relation = engine.select(self._connection, query)
        return engine.arrow_batches(relation, BATCH_ROWS)

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. Nothing else can read the file meanwhile, which is how DuckDB works."""
        self._connection.close()  # DuckDB opens a file once in a process, either for reading or for writing.
        try:
            return self._write(table, schema, batches)
        finally:
            self._connection = self._open()

    def close(self) -> None:
        """See ``Database``."""
        self._connection.close()

    def _open(self) -> Any:
        connection = engine.connect(self._path)
        engine.lock(connection)
        return connection

    def _write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        import pyarrow as pa

        rows = 0
        connection = engine.connect(self._path, writes=True)
        try:
            with engine.query_errors():
                connection.execute("BEGIN")
                if split_name(table)[0]:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(split_name(table)[0])}")
                connection.register("new_rows", schema.empty_table())
                connection.execute(f"CREATE OR REPLACE TABLE {qualified(table)} AS SELECT * FROM new_rows")  # noqa: S608 - quoted
                for batch in batches:
                    connection.register("new_rows", pa.Table.from_batches([batch], schema))
                    connection.execute(f"INSERT INTO {qualified(table)} SELECT * FROM new_rows")  # noqa: S608 - quoted
                    rows += batch.num_rows
                connection.execute("COMMIT")
        finally:
            connection.close()  # Without COMMIT nothing has changed.
        return rows
