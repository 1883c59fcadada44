"""TRAIN statements over tables in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from elasticdl.sql.databases import open_database
from elasticdl.sql.preparation import PreparedTraining, prepare_training
from elasticdl.sql.statements import Attribute, Call, ColumnClause, Expression, Literal, Name, Query, Train

TABLE = "things"


def call(function: str, *arguments: Any, **keywords: Any) -> Call:
    """A COLUMN function; texts are names of columns, numbers and tuples constants."""
    return Call(
        Name(function),
        tuple(map(_argument, arguments)),
        tuple((Name(name), Literal(value)) for name, value in keywords.items()),
    )


def _argument(value: Any) -> Expression:
    if isinstance(value, str):
        return Name(value)
    return Literal(value) if isinstance(value, int | float | tuple) else value


def statement(
    label: str = "y",
    *,
    columns: tuple[ColumnClause, ...] = (),
    model: str = "",
    select: str = f"SELECT * FROM {TABLE}",
    **attributes: Any,
) -> Train:
    return Train(
        Query(select),
        (Name(label),),
        Name("m"),
        Name(model) if model else None,
        tuple(Attribute(Name(name.replace("__", ".")), value) for name, value in attributes.items()),
        columns,
    )


def clause(*columns: Any, target: str = "") -> ColumnClause:
    return ColumnClause(tuple(map(_argument, columns)), Name(target) if target else None)


def prepare(folder: Path, rows: pa.Table, train: Train) -> PreparedTraining:
    """What a job would get of a statement over a table."""
    tables, work = folder / "tables", folder / "work"
    tables.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    pq.write_table(rows, tables / f"{TABLE}.parquet")
    database = open_database(str(tables))
    try:
        return prepare_training(train, database, work, say=lambda _: None)
    finally:
        database.close()


def uses(prepared: PreparedTraining) -> dict[str, str]:
    return {one.name: one.use for one in prepared.report}


def reasons(prepared: PreparedTraining) -> dict[str, str]:
    return {one.name: one.reason for one in prepared.report}
