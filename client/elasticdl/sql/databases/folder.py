"""A folder of Parquet, CSV or JSON files: each file, or each folder of files, is a table with its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.errors import file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.sql.databases import engine
from elasticdl.sql.databases.port import BATCH_ROWS, QueryError, qualified, split_name

if TYPE_CHECKING:
    import pyarrow as pa

_READERS: Mapping[str, str] = {
    ".parquet": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".json": "read_json",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
}


class FolderDatabase:
    """DuckDB over the files of a folder.

    Args:
        folder: where the files are, and where tables are written, as Parquet. It is made when the first one is.
        tables: more tables: name -> a Parquet or CSV file.
        url: what messages call the database; empty: the folder.
    """

    def __init__(self, folder: Path, *, tables: Mapping[str, Path] | None = None, url: str = "") -> None:
        self.url = url or str(folder)
        self._folder = folder.resolve()
        self._given = dict(tables or {})
        self._connection = engine.connect()
        self._files: dict[str, str] = {}
        for name, file in {**self._given, **self._found()}.items():
            self._add(name, file)
        engine.lock(self._connection, [self._folder, *{file.parent for file in self._given.values()}])

    def tables(self) -> list[str]:
        """See ``Database``."""
        return sorted(self._files)

    def columns(self, table: str) -> list[str]:
        """See ``Database``."""
        known = {name.lower(): name for name in self._files}
        if (name := known.get(table.lower())) is None:
            return []
        with engine.query_errors():
            return list(self._connection.sql(f"FROM {qualified(name)}").columns)

    def schema(self, query: str) -> pa.Schema:
        """See ``Database``."""
        relation = engine.select(self._connection, query)
        return engine.arrow_schema(relation)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``."""
        relation = engine.select(self._connection, query)
        return engine.arrow_batches(relation, BATCH_ROWS)

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. The table is one Parquet file.

        Raises:
            QueryError: the name is that of a file of another format, or is no name of a file.
        """
        import pyarrow.parquet as pq

        file = self._folder / f"{table}.parquet"
        if file.parent != self._folder or table.startswith((".", "_")):
            raise QueryError(f"{table!r} can't be the name of a table in a folder: it names its file")
        if table in self._files and self._files[table] != str(file) and table not in self._given:
            raise QueryError(f"the table {table!r} is {self._files[table]}, which is not replaced by predictions")
        rows = 0
        with file_errors(f"{file} can't be written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(file) as target, pq.ParquetWriter(target, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        self._add(table, file)
        return rows

    def close(self) -> None:
        """See ``Database``."""
        self._connection.close()

    def _found(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if path.name.startswith((".", "_")):
                continue
            if path.is_dir() and any(each.suffix in _READERS for each in path.iterdir()):
                found.setdefault(path.name, path)
            elif path.suffix in _READERS:
                found.setdefault(path.stem, path)
        return found

    def _add(self, name: str, path: Path) -> None:
        """Make a file, or the files of a folder, a view."""
        files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix in _READERS)
        reader = _READERS[files[0].suffix]
        listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
        with engine.query_errors():
            if schema := split_name(name)[0]:
                self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(schema)}")
            self._connection.execute(f"CREATE OR REPLACE VIEW {qualified(name)} AS FROM {reader}([{listed}])")
        self._files[name] = str(path)
