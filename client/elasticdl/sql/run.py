"""Runs statements, one after the other: each waits for the job of the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import count, did_you_mean
from elasticdl.sql import inspection
from elasticdl.sql.attached import Attached
from elasticdl.sql.checking import schema_of, version_of
from elasticdl.sql.jobs import Jobs
from elasticdl.sql.parsing import ParsedStatement
from elasticdl.sql.registry import Registry
from elasticdl.sql.results import Display, Result, Table, from_arrow
from elasticdl.sql.statements import (
    DescribeModel,
    DescribeTable,
    DropModel,
    Evaluate,
    Explain,
    ExplainPlan,
    Predict,
    Query,
    Select,
    ShowModels,
    ShowTables,
    ShowTrain,
    Train,
)

ROWS_MAX = 1_000
"""Rows of a SELECT that are kept, unless the caller asks for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What statements run with.

    Attributes:
        rows_max: rows of a SELECT that are read.
        options: of all jobs, where their statements do not give them, such as the platform.
    """

    databases: Attached
    registry: Registry
    jobs: Jobs
    display: Display
    rows_max: int = ROWS_MAX
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, parsed: ParsedStatement) -> Result:
        """Run one statement.

        Raises:
            StatementError: it is wrong.
            UserError, ElasticDLError: it can't be run, or its job has failed.
            KeyboardInterrupt: the user interrupted it.
        """
        statement, text = parsed.statement, parsed.text
        match statement:
            case Select(query):
                return Result(statement=text, kind="select", table=self._select(query))
            case Train() | Predict() | Evaluate() | Explain() | ExplainPlan():
                from elasticdl.sql import compiled

                return compiled.run(self, statement, text)
            case ShowTables():
                rows = tuple((name, each.url) for each in self.databases.all() for name in each.tables())
                return Result(statement=text, kind="show tables", table=Table(("table", "database"), rows))
            case DescribeTable(table):
                return Result(statement=text, kind="describe", table=self._describe(table.text))
            case ShowModels():
                return Result(statement=text, kind="show models", table=inspection.models(self.registry, self.jobs))
            case ShowTrain(model):
                return Result(statement=text, kind="show train", text=version_of(self, model).record.sql)
            case DescribeModel(model):
                facts = inspection.describe(version_of(self, model))
                return Result(statement=text, kind="describe model", table=facts)
            case DropModel(model):
                number = self.registry.drop(model)
                self.display.line(f"Dropped {model}: {count(number, 'version')}.")
                return Result(statement=text, kind="drop model", model=str(model))
        assert_never(statement)

    def _select(self, query: Query) -> Table:
        import pyarrow as pa

        database = self.databases.of_query(query.text)
        schema, batches, rows = schema_of(self, database, query), [], 0
        for batch in database.batches(query.text):
            batches.append(batch)
            rows += batch.num_rows
            if rows > self.rows_max:
                break
        table = pa.Table.from_batches(batches, schema)
        return from_arrow(table.slice(0, self.rows_max), is_cut=rows > self.rows_max)

    def _describe(self, table: str) -> Table:
        database = self.databases.with_table(table)
        found = database.find(table)
        if found is None:
            known = self.databases.tables()
            raise UserError(f"there is no table {table!r}", hint=did_you_mean(table, known, "SHOW TABLES lists them."))
        schema = database.schema(f"SELECT * FROM {found.reference}")  # noqa: S608 - quoted
        return Table(("column", "type"), tuple((each.name, str(each.type)) for each in schema))
