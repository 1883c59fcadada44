"""A folder of Parquet, CSV or JSON files: each file, or each folder of files, is a table with its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.sql.databases import engine
from elasticdl.sql.databases.port import MARK, FoundTable, QueryError, qualified, split_name

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
_BLANK_MAX = 1_000
"""A larger file is not looked at for whether it has blanks only."""


class FolderDatabase(engine.Queries):
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
        self._faults: dict[str, QueryError] = {}
        for name, file in {**self._given, **self._found()}.items():
            self._add(name, file)
        engine.lock(self._connection, [self._folder, *{file.parent for file in self._given.values()}])

    def tables(self) -> list[str]:
        """See ``Database``."""
        return sorted(self._files)

    def find(self, table: str) -> FoundTable | None:
        """See ``Database``."""
        name = self._known(table)
        if name not in self._files:
            self._file(table)
            return None
        if name in self._faults:
            raise self._faults[name]
        file = self._file(name)
        is_other = self._files[name] != str(file) and name not in self._given
        with engine.query_errors():
            columns = tuple(self._connection.sql(f"FROM {qualified(name)}").columns)
        return FoundTable(
            reference=qualified(name),
            columns=columns,
            is_written=self._files[name] == str(file) and _is_written(file),
            obstacle=f"it is {self._files[name]}, which is not replaced" if is_other else "",
        )

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """See ``Database``. The table is one Parquet file.

        Raises:
            QueryError: the name is that of a file of another format, or is no name of a file.
        """
        import pyarrow.parquet as pq

        table = self._known(table)
        file = self._file(table)
        if table in self._files and self._files[table] != str(file) and table not in self._given:
            raise QueryError(f"the table {table!r} is {self._files[table]}, which is not replaced by predictions")
        rows = 0
        with file_errors(f"{file} can't be written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(file) as target, pq.ParquetWriter(target, schema.with_metadata({MARK: ""})) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
        self._add(table, file)
        return rows

    def close(self) -> None:
        """See ``Database``."""
        self._connection.close()

    def _connected(self) -> Any:
        return self._connection

    def _known(self, table: str) -> str:
        """The name of a table as its file has it, for DuckDB's names have no case; a new one as it is."""
        return next((name for name in self._files if name.lower() == table.lower()), table)

    def _file(self, table: str) -> Path:
        """The file of a table that is written.

        Raises:
            QueryError: the name is no name of a file.
        """
        file = self._folder / f"{table}.parquet"
        if file.parent != self._folder or table.startswith((".", "_")):
            raise QueryError(f"{table!r} can't be the name of a table in a folder: it names its file")
        return file

    def _selected(self, query: str) -> Any:
        try:
            return super()._selected(query)
        except QueryError as error:
            told = str(error).lower()
            for name, fault in self._faults.items():
                if split_name(name)[1].lower() in told:  # DuckDB says that there is no such table.
                    raise fault from error
            raise

    def _found(self) -> dict[str, Path]:
        """Of files whose names differ in case only, or in their format, the first one is the table."""
        found: dict[str, tuple[str, Path]] = {}
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if path.name.startswith((".", "_")):
                continue
            if path.is_dir() and any(each.suffix in _READERS for each in path.iterdir()):
                found.setdefault(path.name.lower(), (path.name, path))
            elif path.suffix in _READERS:
                found.setdefault(path.stem.lower(), (path.stem, path))
        return dict(found.values())

    def _add(self, name: str, path: Path) -> None:
        """Make a file, or the files of a folder, a view. If it can't be read, the statements that name it say so."""
        self._files[name] = str(path)
        self._faults.pop(name, None)
        try:
            self._create_view(name, path)
        except QueryError as error:
            self._faults[name] = QueryError(f"the table {name!r} can't be read from {path}: {error.args[0]}")

    def _create_view(self, name: str, path: Path) -> None:
        files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix in _READERS)
        if not (files := [file for file in files if not _is_empty(file)]):
            raise QueryError("it is empty")
        reader = _READERS[files[0].suffix]
        listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
        with engine.query_errors():
            if schema := split_name(name)[0]:
                self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {qualified(schema)}")
            self._connection.execute(f"CREATE OR REPLACE VIEW {qualified(name)} AS FROM {reader}([{listed}])")


def _is_empty(file: Path) -> bool:
    """Whether a file has nothing in it. DuckDB would make a column ``column0`` of it."""
    with file_errors(f"{file} can't be read", QueryError):
        return file.stat().st_size <= _BLANK_MAX and not file.read_bytes().strip()


def _is_written(file: Path) -> bool:
    """Whether a file is a table that a statement has written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(OSError, pa.ArrowInvalid):
        return MARK.encode() in (pq.read_metadata(file).metadata or {})
    return False
