"""What a statement needs of a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from elasticdl.shared.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_CHARS_MAX = 1_000_000
COLUMNS_MAX = 5_000
"""Columns of a result. Every column becomes at least an input of a model."""
BATCH_ROWS = 16_384
"""Rows that are read at a time."""
MARK = "written by elasticdl sql"
"""What a database keeps with each table that a statement has written, so that the next one may replace it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table or a view.

    Attributes:
        reference: its name in a SELECT, with its schema, quoted.
        is_written: a statement has written it, and no other program.
        obstacle: why no statement can replace it, such as ``it is a view``; empty: it can.
    """

    reference: str
    columns: tuple[str, ...]
    is_written: bool = False
    obstacle: str = ""


class Database(Protocol):
    """An open database. Its methods are called by one thread at a time."""

    @property
    def url(self) -> str:
        """Where it is, without credentials, for messages and registry entries."""

    def tables(self) -> list[str]:
        """Names of tables and views, sorted; those of other schemas as ``schema.table``."""

    def find(self, table: str) -> FoundTable | None:
        """A table by the name that ``tables`` gives it, in any case of letters; None: there is none.

        Raises:
            UserError: no table can have this name, or its file can't be read.
        """

    def schema(self, query: str) -> pa.Schema:
        """The columns and types of a query's result.

        Raises:
            UserError: the query is not one SELECT, or the database refuses it.
        """

    def sources(self, query: str) -> frozenset[str]:
        """The tables that a query reads, also those behind its views, as SQL spells their names."""

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query, some at a time. They have the types of ``schema``."""

    def write(self, table: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Create a table, or replace it, atomically: other readers see the former table until all rows are there.

        Returns:
            The number of rows.
        """

    def close(self) -> None:
        """Disconnect."""


class QueryError(UserError):
    """The database refuses a query. The message is the database's own."""


def message_of(error: Exception) -> str:
    """The first lines of a driver's error, without its excerpt of a query that the user has not written."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([line for line in lines if not line.startswith(("LINE ", "^"))][:3]) or type(error).__name__


def check_query(query: str) -> str:
    """A query without its final semicolon.

    Raises:
        QueryError: it is empty or too long.
    """
    if len(query) > QUERY_CHARS_MAX:
        raise QueryError(f"the SELECT has {len(query):,} characters, the limit is {QUERY_CHARS_MAX:,}")
    text = query.strip().rstrip(";").strip()
    if not text:
        raise QueryError("there is no SELECT before the clauses of ElasticDL")
    return text


def check_columns(names: Sequence[str]) -> None:
    """Raises ``QueryError``: a result has too many columns, or two of the same name."""
    if len(names) > COLUMNS_MAX:
        raise QueryError(f"the SELECT has {len(names):,} columns, the limit is {COLUMNS_MAX:,}")
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise QueryError(
                f"the SELECT has two columns with the name {name!r}",
                hint=f'Name one of them otherwise: SELECT ... AS "{name}_2".',
            )
        seen[name.lower()] = name


def quoted(name: str) -> str:
    """An identifier in double quotes, as all three databases read it.

    Raises:
        QueryError: it has a character that no identifier may have.
    """
    if "\0" in name or not name:
        raise QueryError(f"{name!r} is not a name of a table or a column")
    return '"' + name.replace('"', '""') + '"'


def split_name(table: str) -> tuple[str, str]:
    """``schema.table`` -> both parts; the schema of a plain name is empty."""
    schema, _, name = table.rpartition(".")
    return schema, name


def qualified(table: str) -> str:
    """The name of a table, with the name of its schema if it has one, each in quotes."""
    return ".".join(quoted(part) for part in split_name(table) if part)


def remembering(batches: Iterable[pa.RecordBatch], problems: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """The rows; what their source raises is kept, because a driver that reads them only keeps its text."""
    try:
        yield from batches
    except BaseException as error:
        problems.append(error)
        raise
