"""Checks that need the database or the registry. Their errors have a place in the statement, as those of the parser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import did_you_mean
from elasticdl.sql.attributes import CheckedAttributes, check_attributes, with_current_names
from elasticdl.sql.inspection import find_model
from elasticdl.sql.parsing.tokens import Kind, Text, Token, tokenize
from elasticdl.sql.registry import ModelVersion
from elasticdl.sql.statements import (
    Fault,
    JobStatement,
    ModelName,
    Position,
    Query,
    StatementError,
    Train,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from elasticdl.sql.databases.port import Database
    from elasticdl.sql.run import Session


def schema_of(session: Session, database: Database, query: Query) -> pa.Schema:
    """The columns of a SELECT.

    Raises:
        StatementError: a table is unknown.
        UserError: the database refuses the SELECT for another reason.
    """
    try:
        return database.schema(query.text)
    except UserError as error:
        known, told = session.databases.tables(), str(error).lower()
        lower = {table.lower() for table in known}
        faults = [
            Fault(f"there is no table {name!r}.", at, length, did_you_mean(name, known, "SHOW TABLES lists them."))
            for name, at, length in _tables(query)
            if name.lower() not in lower and name.lower().rpartition(".")[2] in told
        ]
        if faults:
            raise StatementError(faults) from error
        raise


def checked(session: Session, statement: JobStatement, database: Database) -> CheckedAttributes:
    """Check the attributes of a statement, and all its names against the SELECT if it trains.

    Raises:
        StatementError: with all that is wrong.
        UserError: the database refuses the SELECT.
    """
    found = check_attributes(statement)
    faults = list(found.faults)
    schema = schema_of(session, database, statement.query)
    if isinstance(statement, Train):
        from elasticdl.sql.request import Request

        try:
            Request.of(replace(statement, attributes=with_current_names(statement.attributes)), schema)
        except StatementError as error:
            faults += [fault for fault in error.faults if fault.position not in {each.position for each in faults}]
    if faults:
        raise StatementError(faults)
    for note in found.notes:
        session.display.line(note)
    return found


def version_of(session: Session, name: ModelName) -> ModelVersion:
    """A registered model.

    Raises:
        StatementError: there is none.
    """
    try:
        return find_model(session.registry, session.jobs, name)
    except UserError as error:
        fault = Fault(f"{error.args[0]}.", name.name.position, len(str(name)), error.hint)
        raise StatementError([fault]) from error


def _tables(query: Query) -> Iterator[tuple[str, Position, int]]:
    """Name, place and length of each table that a SELECT names after FROM and JOIN."""
    try:
        tokens = tokenize(Text(query.text))
    except StatementError:
        return
    for before, first in itertools.pairwise(tokens):
        if before.word in ("FROM", "JOIN") and first.kind in (Kind.WORD, Kind.QUOTED):
            name, end = _dotted(tokens, tokens.index(first))
            start = Text(query.text).position(first.start)
            at = query.position
            column = start.column + (at.column - 1 if start.line == 1 else 0)
            yield name, Position(at.line + start.line - 1, column, at.offset + start.offset), end - first.start


def _dotted(tokens: list[Token], at: int) -> tuple[str, int]:
    name, end = tokens[at].text, tokens[at].end
    while tokens[at + 1].is_sign(".") and tokens[at + 1].start == end and tokens[at + 2].kind is not Kind.END:
        at += 2
        name, end = f"{name}.{tokens[at].text}", tokens[at].end
    return name, end
