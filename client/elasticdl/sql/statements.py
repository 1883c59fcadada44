"""A parsed statement: what the user wrote, with the position of every name, before anything is looked up.

Lines and columns count from 1, offsets from 0; all three count characters of the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from elasticdl.shared.errors import UserError

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a token begins."""

    line: int
    column: int
    offset: int


START = Position(1, 1, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """A name, without its quotes. The name of a model or a table may have dots: ``zoo.iris_net``."""

    text: str
    position: Position = field(default=START, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Query:
    """The SELECT (or WITH ... SELECT) as the user wrote it, without the clauses of ElasticDL and without a ``;``."""

    text: str
    position: Position = field(default=START, compare=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """``name = value`` of WITH. The position is that of the value; the name has its own."""

    name: Name
    value: Value
    position: Position = field(default=START, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant or a list of constants among the arguments of a COLUMN function."""

    value: Value
    position: Position = field(default=START, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression over the names of columns, from a string that is no argument: ``COLUMN 'sex_.*'``."""

    text: str
    position: Position = field(default=START, compare=False)


@dataclass(frozen=True, slots=True)
class Star:
    """``*``: every column that no other expression of the statement names."""

    position: Position = field(default=START, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """``EMBEDDING(HASH(address, 1000), 16, combiner='sum')``. The function's name is in upper case.

    A list of expressions, as in ``CROSS([a, b], 100)``, is given as its elements, one after the other.
    """

    function: Name
    arguments: tuple[Expression, ...]
    keywords: tuple[tuple[Name, Expression], ...] = ()

    @property
    def position(self) -> Position:
        """Where the function's name begins."""
        return self.function.position


Expression: TypeAlias = "Call | Name | Literal | Pattern | Star"


@dataclass(frozen=True, slots=True)
class ColumnClause:
    """``COLUMN a, b [FOR target]``: features of the model, or of its input ``target``."""

    columns: tuple[Expression, ...]
    target: Name | None = None


@dataclass(frozen=True, slots=True)
class ModelName:
    """A registered model, ``name`` or ``name@3`` (without a version: the newest), or the folder of an exported one."""

    name: Name
    version: int | None = None

    def __str__(self) -> str:
        return self.name.text if self.version is None else f"{self.name.text}@{self.version}"


@dataclass(frozen=True, slots=True)
class Select:
    """A query whose rows are shown."""

    query: Query


@dataclass(frozen=True, slots=True)
class Train:
    """``SELECT ... TO TRAIN model WITH ... COLUMN ... LABEL ... INTO name``, or the short form ``LABEL ... INTO name``.

    ``using`` is the model whose weights training starts from.
    """

    query: Query
    label: tuple[Name, ...]
    into: Name
    model: Name | None = None
    attributes: tuple[Attribute, ...] = ()
    columns: tuple[ColumnClause, ...] = ()
    using: ModelName | None = None


@dataclass(frozen=True, slots=True)
class Predict:
    """``SELECT ... TO PREDICT table[.column] USING model``. ``into`` is the table, without the column."""

    query: Query
    into: Name
    column: Name | None
    using: ModelName
    attributes: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluate:
    """``SELECT ... TO EVALUATE model [LABEL name] [INTO table]``; without LABEL: the label of the training."""

    query: Query
    using: ModelName
    label: Name | None = None
    into: Name | None = None
    attributes: tuple[Attribute, ...] = ()


@dataclass(frozen=True, slots=True)
class Explain:
    """``SELECT ... TO EXPLAIN model [USING explainer] [INTO table]``."""

    query: Query
    using: ModelName
    into: Name | None = None
    attributes: tuple[Attribute, ...] = ()
    explainer: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """``SHOW TABLES``."""


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """``DESCRIBE table``: its columns and their types."""

    table: Name


@dataclass(frozen=True, slots=True)
class ShowModels:
    """``SHOW MODELS``."""


@dataclass(frozen=True, slots=True)
class ShowTrain:
    """``SHOW TRAIN model``: the statement that trained it."""

    model: ModelName


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """``DESCRIBE MODEL model``."""

    model: ModelName


@dataclass(frozen=True, slots=True)
class DropModel:
    """``DROP MODEL name`` deletes all versions, ``DROP MODEL name@3`` one."""

    model: ModelName


JobStatement: TypeAlias = "Train | Predict | Evaluate | Explain"


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """``EXPLAIN PLAN statement``: what the statement would do; runs no job and writes nothing."""

    statement: JobStatement


Inspection: TypeAlias = "ShowTables | DescribeTable | ShowModels | ShowTrain | DescribeModel"
Statement: TypeAlias = "Select | JobStatement | Inspection | DropModel | ExplainPlan"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a statement, and where. ``hint`` says what to write instead, or is empty."""

    message: str
    position: Position
    length: int = 1
    hint: str = ""


class StatementError(UserError):
    """Everything that is wrong with a statement, in the order of the text.

    ``render`` in ``elasticdl.sql.parsing.faults`` shows each with its line and a caret.
    """

    def __init__(self, faults: tuple[Fault, ...] | list[Fault]) -> None:
        """Raises ValueError: no fault is given."""
        if not faults:
            raise ValueError("an error needs a fault")
        self.faults = tuple(sorted(faults, key=lambda fault: fault.position))
        lines = (f"line {at.position.line}, column {at.position.column}: {at.message} {at.hint}" for at in self.faults)
        super().__init__("\n".join(line.rstrip() for line in lines), usage=True)
