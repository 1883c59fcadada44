"""The databases that statements read: those of ``--database``, or the tables that the package ships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.sql.parsing.tokens import Kind, Text, tokenize
from elasticdl.sql.statements import StatementError

if TYPE_CHECKING:
    from elasticdl.sql.databases.port import Database


class Attached:
    """Databases, each opened when a statement needs it.

    Args:
        places: as ``--database`` takes them; none: the shipped tables.
        ask: asks the user for a password that a server wants; None: it is an error.
    """

    def __init__(self, places: Sequence[str] = (), ask: Callable[[str], str] | None = None) -> None:
        self._ask = ask
        self.places = tuple(places) or ("",)
        self._opened: dict[str, Database] = {}

    def all(self) -> list[Database]:
        """Every database, in the order of the command line.

        Raises:
            UserError: one can't be opened.
        """
        from elasticdl.sql.databases import open_database

        for place in self.places:
            if place not in self._opened:
                self._opened[place] = open_database(place, self._ask)
        return [self._opened[place] for place in self.places]

    def of_query(self, query: str) -> Database:
        """The database that has most of the tables that a query names; of several, the first."""
        databases = self.all()
        if len(databases) == 1:
            return databases[0]
        words = _words(query)
        return max(databases, key=lambda each: sum(_last(table) in words for table in each.tables()))

    def with_table(self, table: str) -> Database:
        """The database that has a table; the first if none has."""
        databases = self.all()
        found = (each for each in databases if table.lower() in {name.lower() for name in each.tables()})
        return next(found, databases[0])

    def tables(self) -> list[str]:
        """The tables of all databases."""
        return list(dict.fromkeys(name for each in self.all() for name in each.tables()))

    def columns(self, table: str) -> list[str]:
        """The columns of a table; empty: no database has it."""
        found = self.with_table(table).find(table)
        return list(found.columns) if found else []

    def close(self) -> None:
        """Disconnect from all of them."""
        opened, self._opened = self._opened, {}
        for database in opened.values():
            database.close()

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _last(table: str) -> str:
    return table.rpartition(".")[2].lower()


def _words(query: str) -> set[str]:
    """Every name in a query, in lower case."""
    try:
        tokens = tokenize(Text(query))
    except StatementError as error:
        raise UserError(str(error)) from error
    return {token.text.lower() for token in tokens if token.kind in (Kind.WORD, Kind.QUOTED)}
