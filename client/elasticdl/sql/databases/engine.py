"""DuckDB in this process: it reads files and sorts rows, and can reach nothing but the folders that it is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases.port import BATCH_ROWS, QueryError, check_columns, check_query, message_of

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
MEMORY_MIB = 200
"""For the queries of users."""
SNAPSHOT_MIB = 80
"""For sorting and grouping the rows of a statement; more than that goes to temporary files."""
_THREADS = 2
_LOCKED = re.compile(r"set lock on file.*?(?:PID (\d+)|$)", re.DOTALL)
_OPEN_HERE = "different configuration"
_CHECKED_EVERY_S = 0.05
_INTERRUPTED = "Query interrupted"


class Queries:
    """The part of a database that runs SELECTs with a connection of DuckDB."""

    def _connected(self) -> Any:
        """The connection."""
        raise NotImplementedError

    def schema(self, query: str) -> pa.Schema:
        """See ``Database``."""
        return interruptible(self._connected(), lambda: arrow_schema(self._selected(query)))

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """See ``Database``."""
        connection = self._connected()
        source = arrow_batches(self._selected(query), BATCH_ROWS)
        while (batch := interruptible(connection, lambda: next(source, None))) is not None:
            yield batch

    def sources(self, query: str) -> frozenset[str]:
        """See ``Database``."""
        with query_errors():
            return frozenset(self._connected().get_table_names(check_query(query), qualified=True))

    def _selected(self, query: str) -> Any:
        return select(self._connected(), query)


def connect(
    file: Path | None = None,
    *,
    writes: bool = False,
    temporary: Path | None = None,
    columns: int = 0,
    memory_mib: int = MEMORY_MIB,
) -> Any:
    """A connection that loads no extensions and takes no Python variables for tables.

    Args:
        file: the database; None: one in memory.
        writes: open the file for writing. It must not be open in this process otherwise.
        temporary: folder for what does not fit into memory.
        columns: of the widest rows: DuckDB keeps some thousand rows of each table in memory.
        memory_mib: limit for what it keeps in memory, unless rows have more columns.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise UserError("SQL needs the package duckdb", hint="Install it: pip install 'elasticdl[sql]'.") from error

    config: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "memory_limit": f"{max(memory_mib, columns)}MiB",
        "threads": str(_THREADS),
        "preserve_insertion_order": "false",
    }
    if temporary is not None:
        config["temp_directory"] = str(temporary)
    try:
        connection = duckdb.connect(str(file or ":memory:"), read_only=file is not None and not writes, config=config)
    except duckdb.Error as error:
        _refuse(file, error)
    connection.execute("SET python_enable_replacements=false")
    connection.execute("SET enable_progress_bar=false")
    connection.execute("SET parquet_metadata_cache=true")
    return connection


def _refuse(file: Path | None, error: Exception) -> NoReturn:
    """Raises ``UserError``: a file can't be opened, and why."""
    text = str(error)
    if (locked := _LOCKED.search(text)) or _OPEN_HERE in text:
        where = f"process {locked[1]}" if locked and locked[1] else "another process" if locked else "this process"
        raise UserError(
            f"{file} is open in {where}, and DuckDB lets one process write to a file or several read it",
            hint="Close it there, and run the statement again.",
        ) from error
    raise UserError(f"{file} can't be opened: {message_of(error)}") from error


def lock(connection: Any, folders: Sequence[Path] = ()) -> None:
    """Let a connection read and write nothing but some folders, from now on."""
    connection.execute(f"SET allowed_directories={[str(folder) for folder in folders]!r}")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")


def select(connection: Any, query: str) -> Any:
    """The result of one SELECT of a user, not yet computed.

    Raises:
        QueryError: it is another statement, or several, or DuckDB refuses it.
    """
    import duckdb

    query = check_query(query)
    with query_errors():
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
            raise QueryError("only one SELECT can be run here, and nothing that changes a database or its settings")
        check_columns(connection.sql(query).columns)  # In a subquery, DuckDB renames the second of two equal names.
        # The line ends a comment at the end of the query.
        return connection.sql(f"SELECT * FROM ({query}\n)")  # noqa: S608 - the user's own SELECT


def interruptible(connection: Any, work: Callable[[], T]) -> T:
    """Let a connection work on another thread, so that Ctrl-C ends a query at once and not after its current part."""
    with ThreadPoolExecutor(1, "query") as thread:
        waiting = thread.submit(work)
        try:
            while not waiting.done():  # After a use of Postgres' driver, a signal ends no wait.
                wait([waiting], timeout=_CHECKED_EVERY_S)
        except KeyboardInterrupt:
            while not waiting.done():  # An interrupt before the query begins is lost.
                connection.interrupt()
                wait([waiting], timeout=_CHECKED_EVERY_S)
            raise
        return waiting.result()


def arrow_schema(relation: Any) -> pa.Schema:
    """The types of a result, without computing its rows."""
    with query_errors():
        return relation.limit(0).to_arrow_table().schema


def arrow_batches(relation: Any, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a result, some at a time."""
    with query_errors():
        yield from relation.to_arrow_reader(rows)


@contextmanager
def query_errors() -> Iterator[None]:
    """Errors of DuckDB, as ours. Of Ctrl-C it makes an error of its own, which is a ``KeyboardInterrupt`` again."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from error
    except duckdb.Error as error:
        raise QueryError(f"the query fails: {message_of(error)}") from error
