"""The rows of a SELECT, in Parquet: read once, so that a job, its resume and all statistics see the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import PermanentError, file_errors
from elasticdl.shared.words import count
from elasticdl.sql.databases import Database, engine
from elasticdl.sql.databases.port import QueryError, quoted

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES = 4 << 20
"""Rows are collected up to this size and written as one row group."""
_ROW_GROUP_ROWS = 10_000
_CELLS_MAX = 250_000
"""Values that are read from a file at a time."""
_ROWS_SAID = 1_000_000
"""After this many rows each, progress is said."""
_TABLE, _THRESHOLDS = "snapshot_rows", "validation_thresholds"
_ORDER, _KEY, _STRATUM = "snapshot order", "snapshot key", "snapshot stratum"
"""Names of computed columns."""
_NULL = "chr(0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which rows are for validation.

    Attributes:
        share: of the rows, from 0 (none) to below 1.
        by: all rows with the same values of these columns are on one side; empty: each row is decided by itself.
        stratify: column whose values have the same share on both sides; empty: none. Not used with ``by``.
        seed: another seed makes another choice, and another order of rows.
    """

    share: float = 0.0
    by: tuple[str, ...] = ()
    stratify: str = ""
    seed: int = 0


class Snapshot:
    """Rows in a Parquet file, and queries over them.

    Args:
        file: the rows.
    """

    def __init__(self, file: Path, schema: pa.Schema, rows: int) -> None:
        self.file = file
        self.schema = schema
        self.rows = rows
        self._opened: Any = None

    def query(self, selected: Sequence[str], rest: str = "") -> pa.Table:
        """The result of ``SELECT selected FROM rows rest``.

        Args:
            selected: expressions of DuckDB. Names in them are quoted by the caller.
        """
        return self._table(f"SELECT {', '.join(selected)} FROM {_TABLE} {rest}")  # noqa: S608 - made by this package

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in the order of the file."""
        import pyarrow.parquet as pq

        with file_errors(f"{self.file} can't be read", PermanentError), pq.ParquetFile(self.file) as file:
            yield from file.iter_batches(batch_rows(len(self.schema)))

    def part(self, file: Path, split: Split, *, validation: bool) -> Snapshot:
        """Write one side of a split, in an order that follows from the seed and the content of the rows.

        So neither the rows nor their order depend on the order in which the database has given them.
        """
        everything = tuple(self.schema.names)
        key, stratum = self._split_key(split, everything), _stratum(split)
        computed = f"{_key(everything, split.seed)} AS {quoted(_ORDER)}"
        where = ""
        if split.share:
            self._find_thresholds(split, key, stratum)
            computed += f", {key} AS {quoted(_KEY)}, {stratum} AS {quoted(_STRATUM)}"
            where = (
                f"LEFT JOIN {_THRESHOLDS} AS t ON r.{quoted(_STRATUM)} = t.stratum "
                f"WHERE coalesce(r.{quoted(_KEY)} <= t.key, false) = {'true' if validation else 'false'}"
            )
        names = ", ".join(f"r.{quoted(name)}" for name in everything)
        rows = f"(SELECT *, {computed} FROM {_TABLE}) AS r"  # noqa: S608 - made by this package
        text = f"SELECT {names} FROM {rows} {where} ORDER BY r.{quoted(_ORDER)}"  # noqa: S608
        with engine.query_errors():
            relation = self._connection.sql(text)
            found = write(engine.arrow_batches(relation, batch_rows(len(everything))), self.schema, file)
        del relation
        self.close()
        return found

    def close(self) -> None:
        """Free the memory for queries, which the next one takes again; the file stays."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _connection(self) -> Any:
        if self._opened is None:
            columns = len(self.schema)
            self._opened = engine.connect(
                temporary=self.file.parent / "_temporary", columns=columns, memory_mib=engine.SNAPSHOT_MIB
            )
            self._opened.read_parquet(str(self.file)).create_view(_TABLE)
        return self._opened

    def _split_key(self, split: Split, everything: Sequence[str]) -> str:
        """What decides on which side a row is. Rows of the same content are decided one by one, except with ``by``.

        Else a table with few different rows would have whole kinds of them on one side.
        """
        key = _key(split.by or everything, split.seed)
        if split.by or not split.share:
            return key
        repeated = self._table(f"SELECT 1 FROM {_TABLE} GROUP BY {key} HAVING count(*) > 1 LIMIT 1").num_rows  # noqa: S608
        # A window holds whole rows, so it is for the tables that need it.
        return f"md5_number(concat_ws(chr(31), {key}, row_number() OVER (PARTITION BY {key})))" if repeated else key

    def _find_thresholds(self, split: Split, key: str, stratum: str) -> None:
        """Of each stratum, the greatest key that is for validation: the keys up to it are the share of the split."""
        keys = f"SELECT {'DISTINCT ' if split.by else ''}{stratum} AS stratum, {key} AS key FROM {_TABLE}"  # noqa: S608
        ranked = (
            "SELECT stratum, key, row_number() OVER (PARTITION BY stratum ORDER BY key) AS rank, "  # noqa: S608
            f"count(*) OVER (PARTITION BY stratum) AS keys FROM ({keys})"
        )
        with engine.query_errors():
            self._connection.execute(
                f"CREATE OR REPLACE TABLE {_THRESHOLDS} AS SELECT stratum, max(key) AS key FROM ({ranked}) "  # noqa: S608
                "WHERE rank <= round(keys * ?) GROUP BY stratum",
                [split.share],
            )

    def _table(self, text: str) -> pa.Table:
        with engine.query_errors():
            return self._connection.sql(text).to_arrow_table()


def take(database: Database, query: str, file: Path, say: Callable[[str], None]) -> Snapshot:
    """Run a query once and write its rows.

    Args:
        say: gets a line for each million rows.

    Raises:
        QueryError: the database refuses the query, or Parquet has no such type as one of its columns.
        PermanentError: the file can't be written.
    """
    given = database.schema(query)
    for column in given:
        _check_type(column)
    schema = _stored(given)
    batches = _counted(database.batches(query), say)
    return write(batches if schema == given else (batch.cast(schema) for batch in batches), schema, file)


def _stored(schema: pa.Schema) -> pa.Schema:
    """The types with which rows come back from a Parquet file: those of enums and of lists of one length do not."""
    import pyarrow as pa

    def stored(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return stored(kind.value_type)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            return pa.list_(stored(kind.value_type))
        return kind

    return pa.schema([field.with_type(stored(field.type)) for field in schema])


def _check_type(column: pa.Field) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
    except NotImplementedError as error:
        raise QueryError(
            f"the column {column.name!r} is {column.type}, which can't be stored as Parquet",
            hint="Select an expression of it instead, or leave it out.",
        ) from error


def write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: Path) -> Snapshot:
    """Write rows into a new file; only some of them are in memory at a time."""
    return Snapshot(file, schema, write_rows(batches, schema, file))


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: Path) -> int:
    """Write rows into a new Parquet file, and return their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, waiting = 0, list[pa.RecordBatch]()
    with file_errors(f"{file} can't be written", PermanentError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(file, schema) as writer:
            for batch in batches:
                rows += batch.num_rows
                waiting.append(batch)
                if _is_full(waiting):
                    writer.write_table(pa.Table.from_batches(waiting, schema))
                    waiting = []
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting, schema))
    waiting.clear()
    pa.default_memory_pool().release_unused()
    return rows


def _is_full(batches: Sequence[Any]) -> bool:
    rows, size = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    return bool(rows >= _ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES)


def _counted(batches: Iterator[pa.RecordBatch], say: Callable[[str], None]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        before, rows = rows, rows + batch.num_rows
        if before // _ROWS_SAID != rows // _ROWS_SAID:
            say(f"{count(rows, 'row')} read")
        yield batch


def batch_rows(columns: int) -> int:
    """Rows that are read at a time of a table with this number of columns."""
    return max(64, min(_ROW_GROUP_ROWS, _CELLS_MAX // max(columns, 1)))


def _key(columns: Sequence[str], seed: int) -> str:
    """A number that follows from the content of columns; DuckDB's own hash() may differ between versions."""
    texts = (f"coalesce(CAST({quoted(name)} AS VARCHAR), {_NULL})" for name in columns)
    return f"md5_number(concat_ws(chr(31), '{seed}', {', '.join(texts)}))"


def _stratum(split: Split) -> str:
    if not split.stratify or split.by:
        return "''"
    return f"coalesce(CAST({quoted(split.stratify)} AS VARCHAR), {_NULL})"
