"""Checks that need the database or the registry. Their errors have a place in the statement, as those of the parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.options import flags_of
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.words import did_you_mean
from elasticdl.sql.attributes import CheckedAttributes, check_attributes, with_current_names
from elasticdl.sql.inspection import find_model
from elasticdl.sql.jobs import KUBERNETES
from elasticdl.sql.parsing.sources import named_tables
from elasticdl.sql.parsing.tokens import Text, tokenize
from elasticdl.sql.registry import ModelVersion, check_name
from elasticdl.sql.statements import (
    Attribute,
    Fault,
    JobStatement,
    ModelName,
    Name,
    Position,
    Query,
    StatementError,
    Train,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from elasticdl.sql.databases.port import Database
    from elasticdl.sql.run import Session

_UNREACHABLE = "models and rows are on this machine, where pods can't read them."
_NOT_UNDERSTOOD = re.compile(
    r'near "([^"]+)"|[Rr]eferenced column "([^"]+)" not found|no such column: (\S+)|column "?([^" ]+)"? does not exist'
)
"""What DuckDB, SQLite and Postgres say of a syntax error and of an unknown column."""
_GIVE_STORAGE = "Give a place in object storage: elasticdl sql --storage=s3://BUCKET/PREFIX."


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
        named = [each for each in _tables(query) if each[0].lower().rpartition(".")[2] in told]
        faults = [
            Fault(f"there is no table {name!r}.", at, length, did_you_mean(name, known, "SHOW TABLES lists them."))
            for name, at, length in named
            if name.lower() not in lower
        ]
        for name, at, length in named:
            if other := session.databases.elsewhere(name, database):
                message = f"the table {name!r} is in {other.url}, and the SELECT reads {database.url}."
                faults.append(Fault(message, at, length, "All tables of a SELECT are in one database."))
        faults = faults or list(_named_in(error, query))
        if faults:
            raise StatementError(faults) from error
        raise


def _named_in(error: UserError, query: Query) -> Iterator[Fault]:
    """The place of what the database does not understand, where its message names it and the SELECT has it once."""
    found = _NOT_UNDERSTOOD.search(error.args[0])
    if found is None:
        return
    syntax, *columns = found.groups()
    name = (syntax or next(filter(None, columns)).rpartition(".")[2]).lower()
    text = Text(query.text)
    if len(named := [token for token in tokenize(text) if token.text.lower() == name]) == 1:
        (token,) = named
        place, message = _position(text, token.start, query), error.args[0].rstrip("?!.")
        yield Fault(f"{message}.", place, token.end - token.start, error.hint)


def checked(session: Session, statement: JobStatement, database: Database) -> CheckedAttributes:
    """Check the attributes of a statement, and all its names against the SELECT if it trains.

    Raises:
        StatementError: with all that is wrong.
        UserError: the database refuses the SELECT.
    """
    found = check_attributes(statement)
    faults = [*found.faults, *_platform_faults(session, statement, found)]
    schema = schema_of(session, database, statement.query)
    if isinstance(statement, Train):
        from elasticdl.sql.request import Request

        try:
            Request.of(replace(statement, attributes=with_current_names(statement.attributes)), schema)
        except StatementError as error:
            faults += [fault for fault in error.faults if fault.position not in {each.position for each in faults}]
        faults += [*_validation_faults(statement, database, schema), *_name_faults(statement.into)]
    elif statement.into is not None:
        is_replacing = bool(found.settings.get("table.replace"))
        faults += _target_faults(statement.query, statement.into, database, is_replacing=is_replacing)
    if faults:
        raise StatementError(faults)
    for note in found.notes:
        session.display.line(note)
    return found


def _platform_faults(session: Session, statement: JobStatement, found: CheckedAttributes) -> Iterator[Fault]:
    """Attributes of Kubernetes for a job on this machine, and a job on Kubernetes whose pods would find no data."""
    options = {**session.options, **found.options}
    is_cluster = options.get("platform") == KUBERNETES
    for each in statement.attributes:
        name = each.name.text
        if is_cluster and name == "platform" and session.registry.is_here:
            yield Fault(_UNREACHABLE, each.name.position, len(name), _GIVE_STORAGE)
        elif not is_cluster and name in flags_of(KubernetesFlags):
            yield Fault(f"{name} needs platform = '{KUBERNETES}'.", each.name.position, len(name))
    if is_cluster and session.registry.is_here and "platform" not in found.options:
        raise UserError(_UNREACHABLE.rstrip("."), hint=_GIVE_STORAGE, usage=True)


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


def _name_faults(model: Name) -> Iterator[Fault]:
    try:
        check_name(model.text)
    except UserError as error:
        yield Fault(f"{error.args[0]}.", model.position, len(model.text), error.hint)


def _validation_faults(statement: Train, database: Database, schema: pa.Schema) -> Iterator[Fault]:
    """What is wrong with the SELECT of the rows for validation."""
    for each in with_current_names(statement.attributes):
        if each.name.text == "validation.select" and isinstance(each.value, str):
            yield from _select_faults(each, each.value, database, schema)


def _select_faults(attribute: Attribute, select: str, database: Database, schema: pa.Schema) -> Iterator[Fault]:
    from elasticdl.sql.request import find_column

    try:
        columns = database.schema(select)
    except UserError as error:
        yield Fault(f"validation.select: {error.args[0]}.", attribute.position, len(select) + 2, error.hint)
        return
    if missing := [name for name in schema.names if not find_column(name, columns)]:
        message = f"validation.select has no column {missing[0]!r}, which the SELECT has."
        yield Fault(message, attribute.position, len(select) + 2, did_you_mean(missing[0], columns.names))


def _target_faults(query: Query, into: Name, database: Database, *, is_replacing: bool) -> Iterator[Fault]:
    """Why a statement can't write its table. Found before the job, which may take hours."""
    try:
        found = database.find(into.text)
    except UserError as error:
        yield Fault(f"{error.args[0]}.", into.position, len(into.text), "Name another table.")
        return
    if found is None:
        return
    if found.obstacle:
        message = f"the table {into} can't be replaced: {found.obstacle}."
        yield Fault(message, into.position, len(into.text), "Name another table.")
    elif any(_is_same(name, found.reference, database) for name in _sources(query, database)):
        message = f"the SELECT reads the table {into}, which the result would replace."
        yield Fault(message, into.position, len(into.text), "Name another table.")
    elif not found.is_written and not is_replacing:
        message = f"there is a table {into} that no statement has written."
        hint = "Name another table, or replace it: WITH table.replace = true."
        yield Fault(message, into.position, len(into.text), hint)


def _sources(query: Query, database: Database) -> Iterator[str]:
    """The tables that a SELECT names, and those behind its views."""
    yield from (name for name, _, _ in _tables(query))
    for spelled in database.sources(query.text):
        yield from (found.name for found in named_tables(tokenize(Text(f"FROM {spelled}"))))


def _is_same(name: str, reference: str, database: Database) -> bool:
    with suppress(UserError):
        found = database.find(name)
        return found is not None and found.reference == reference
    return False


def _tables(query: Query) -> Iterator[tuple[str, Position, int]]:
    """Name, place and length of each table that a SELECT names."""
    text = Text(query.text)
    try:
        tokens = tokenize(text)
    except StatementError:
        return
    for found in named_tables(tokens):
        yield found.name, _position(text, found.start, query), found.end - found.start


def _position(text: Text, offset: int, query: Query) -> Position:
    """Where a character of a SELECT is in the script."""
    start, at = text.position(offset), query.position
    column = start.column + (at.column - 1 if start.line == 1 else 0)
    return Position(at.line + start.line - 1, column, at.offset + start.offset)
