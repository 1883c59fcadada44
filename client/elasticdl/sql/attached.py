"""The databases that statements read: those of ``--database``, or the tables that the package ships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.sql.parsing.sources import named_tables
from elasticdl.sql.parsing.tokens import Text, tokenize
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
        named = _named(query)

        def fit(database: Database) -> int:
            tables = {table.lower() for table in database.tables()}
            # ``main.staff`` and ``public.staff`` are the tables that databases list as ``staff``.
            return sum(2 * (name in tables) or name.rpartition(".")[2] in tables for name in named)

        return max(databases, key=fit)

    def elsewhere(self, table: str, database: Database) -> Database | None:
        """Another database that has a table, which this one has not."""
        found = self.with_table(table)
        return found if found is not database and has_table(found, table) and not has_table(database, table) else None

    def with_table(self, table: str) -> Database:
        """The database that has a table; the first if none has."""
        databases = self.all()
        return next((each for each in databases if has_table(each, table)), databases[0])

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


def has_table(database: Database, table: str) -> bool:
    """Whether a database has a table, in any case of letters."""
    return table.lower() in {name.lower() for name in database.tables()}


def _named(query: str) -> set[str]:
    """The tables that a query names, in lower case."""
    try:
        tokens = tokenize(Text(query))
    except StatementError as error:
        raise UserError(str(error)) from error
    return {found.name.lower() for found in named_tables(tokens)}
