"""A DuckDB file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases import engine
from elasticdl.sql.databases.port import MARK, FoundTable, qualified, quoted, remembering, split_name

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES = """
SELECT schema_name, table_name, comment, false FROM duckdb_tables()
WHERE database_name = current_database() AND NOT internal
UNION ALL SELECT schema_name, view_name, comment, true FROM duckdb_views()
WHERE database_name = current_database() AND NOT internal
"""
_MAIN = "main"


class DuckDBFile(engine.Queries):
    """A database in a file. It is opened for writing only while a table is written.

    Raises:
        UserError: it can't be opened, for instance because another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Any = None
        self._connected()

    @property
    def url(self) -> str:
        """The path."""
        return str(self._path)

    def tables(self) -> list[str]:
        """See ``Database``."""
        rows = self._connected().execute(_TABLES).fetchall()
        return sorted(name if schema == _MAIN else f"{schema}.{name}" for schema, name, _, _ in rows)

    def find(self, table: str) -> FoundTable | None:
        """See ``Database``."""
        wanted = table.lower()
        connection = self._connected()
        for schema, name, comment, is_view in connection.execute(_TABLES).fetchall():
            if wanted in (f"{schema}.{name}".lower(), name.lower() if schema == _MAIN else ""):
                reference = f"{quoted(schema)}.{quoted(name)}"
                with engine.query_errors():
                    columns = tuple(connection.sql(f"FROM {reference}").columns)
                obstacle = "it is a view" if is_view else ""
                return FoundTable(reference=reference, columns=columns, is_written=comment == MARK, obstacle=obstacle)
        return None

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``. Afterwards the file is closed, because DuckDB keeps what it has read in memory."""
        yield from super().batches(query)
        self.close()

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. Nothing else can read the file meanwhile, which is how DuckDB works."""
        self.close()  # DuckDB opens a file once in a process, either for reading or for writing.
        return self._write(table, schema, batches)

    def close(self) -> None:
        """See ``Database``. The next query opens the file again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        """The file, opened by the first query after it was closed: another process may have it until then."""
        if self._connection is None:
            connection = engine.connect(self._path)
            engine.lock(connection)
            self._connection = connection
        return self._connection

    def _write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        import pyarrow as pa

        problems: list[BaseException] = []
        reader = pa.RecordBatchReader.from_batches(schema, remembering(batches, problems))
        connection = engine.connect(self._path, writes=True, columns=len(schema), memory_mib=engine.SNAPSHOT_MIB)
        try:
            with engine.query_errors():
                connection.execute("SET preserve_insertion_order=true")
                connection.execute("BEGIN")
                if split_name(table)[0]:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(split_name(table)[0])}")
                connection.register("new_rows", reader)  # Read as a stream: rows that are inserted stay in memory.
                made = connection.execute(f"CREATE OR REPLACE TABLE {qualified(table)} AS SELECT * FROM new_rows")  # noqa: S608 - quoted
                rows = int(made.fetchone()[0])
                connection.execute(f"COMMENT ON TABLE {qualified(table)} IS '{MARK}'")
                connection.execute("COMMIT")
        except UserError:
            if problems:
                raise problems[0] from None
            raise
        finally:
            connection.close()  # Without COMMIT nothing has changed.
        return rows
