"""From a row of a result to what the inputs of a model take: expressions of DuckDB, made here from inputs alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.sql.columns.features import PACKED, Features, Input, Label
from elasticdl.sql.columns.profile import Source, present, source_of
from elasticdl.sql.databases import engine
from elasticdl.sql.databases.port import quoted, remembering
from elasticdl.sql.snapshot import batch_rows

if TYPE_CHECKING:
    import pyarrow as pa

_SECONDS_PER_DAY = 86_400.0
_ROWS = "prepared_rows"


def expression(one: Input, source: Source) -> str:
    """What an input takes of a row.

    Args:
        source: kind of the column in these rows. It may differ from training: SQLite has no booleans, for instance.
    """
    column = quoted(one.column)
    match one.kind:
        case "number":
            return _number(column, one.column, source)
        case "day":
            return f"epoch({_timestamp(column, source)}) / {_SECONDS_PER_DAY}"
        case "text":
            return f"coalesce(CAST({column} AS VARCHAR), '')"
        case "id":
            value = f"TRY_CAST({column} AS BIGINT)"
            return (
                f"CASE WHEN {column} IS NULL THEN -1 WHEN {value} BETWEEN 0 AND {one.size - 1} THEN {value} ELSE -2 END"
            )
        case "vector":
            return _vector(one, column)
        case "texts":
            listed = f"string_split({column}, {_text(one.delimiter)})" if one.delimiter else column
            return f"list_transform(coalesce({listed}, []), lambda x: coalesce(trim(CAST(x AS VARCHAR)), ''))"
        case _:
            listed = f"string_split({column}, {_text(one.delimiter)})" if one.delimiter else f"{column}::VARCHAR[]"
            number = "TRY_CAST(trim(x) AS BIGINT)"
            inside = f"CASE WHEN {number} BETWEEN 0 AND {one.size - 1} THEN {number} + 1 ELSE -1 END"
            return f"list_transform(list_filter(coalesce({listed}, []), lambda x: trim(x) <> ''), lambda x: {inside})"


def label_expression(label: Label) -> str:
    """The text of a row's class, or its value."""
    column = quoted(label.column)
    return f"CAST({column} AS VARCHAR)" if label.classes else f"TRY_CAST({column} AS DOUBLE)"


def prepare(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, features: Features, *, has_label: bool
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Rows as the model takes them, in the same order.

    Args:
        has_label: whether the rows have a label, which is prepared too.

    Returns:
        The types, and the rows, some at a time.
    """
    label = features.label if has_label else None
    selected = [
        f"{expression(one, source_of(schema.field(one.column).type))} AS {quoted(one.name)}" for one in features.inputs
    ]
    if label is not None:
        selected.append(f"{label_expression(label)} AS {quoted(label.name)}")
    prepared = _selected(batches, schema, selected)
    empty = next(prepared)
    return _finished(empty, features, label).schema, (_finished(batch, features, label) for batch in prepared)


def _selected(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, selected: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Expressions over rows. The first batch is empty and has the types.

    All rows are one query: to plan one with thousands of columns takes seconds.
    """
    import pyarrow as pa

    problems: list[BaseException] = []
    connection = engine.connect(columns=len(schema), memory_mib=engine.SNAPSHOT_MIB)
    try:
        connection.execute("SET preserve_insertion_order=true")
        connection.execute("SET threads=1")  # The rows come from one reader anyway.
        with engine.query_errors():
            connection.register(_ROWS, pa.RecordBatchReader.from_batches(schema, remembering(batches, problems)))
            relation = connection.sql(f"SELECT {', '.join(selected)} FROM {_ROWS}")  # noqa: S608
            reader = relation.to_arrow_reader(batch_rows(len(schema)))
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader
    except UserError:
        if problems:
            raise problems[0] from None
        raise
    finally:
        connection.close()


def _finished(batch: pa.RecordBatch, features: Features, label: Label | None) -> pa.RecordBatch:
    """Rows with the number of the class in place of its text, and with packed numbers.

    The number is NULL if the text is no class of the model.
    """
    if label is not None and label.classes:
        import pyarrow as pa
        import pyarrow.compute as pc

        place = batch.schema.get_field_index(label.name)
        numbers = pc.index_in(batch.column(place), value_set=pa.array(label.classes, pa.string())).cast(pa.int64())
        batch = batch.set_column(place, label.name, numbers)
    return _with_packed(batch, features.packed) if features.packed else batch


def _with_packed(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    numbers = np.empty((batch.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        numbers[:, place] = batch.column(name).to_numpy(zero_copy_only=False)
    gone = set(names)
    kept = [name for name in batch.schema.names if name not in gone]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), len(names))
    return pa.RecordBatch.from_arrays([*map(batch.column, kept), vectors], names=[*kept, PACKED])


def _number(column: str, name: str, source: Source) -> str:
    if source == "text":
        value = f"TRY_CAST({column} AS DOUBLE)"
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    if source == "time":
        return f"CAST(epoch({column}) AS DOUBLE)"
    return f"CAST({present(name, source)} AS DOUBLE)"


def _timestamp(column: str, source: Source) -> str:
    return f"TRY_CAST({column} AS TIMESTAMP)" if source == "text" else f"CAST({column} AS TIMESTAMP)"


def _vector(one: Input, column: str) -> str:
    if one.pair_delimiter:
        pair = f"string_split(trim(x), {_text(one.pair_delimiter)})"
        pairs = f"list_transform(string_split({column}, {_text(one.delimiter)}), lambda x: {pair})"
        found = "list_filter(pairs, lambda h: TRY_CAST(h[1] AS BIGINT) = p)"
        value = f"coalesce(TRY_CAST({found.replace('pairs', f'coalesce({pairs}, [])')}[1][2] AS DOUBLE), 0.0)"
        return f"CAST(list_transform(range(0, {one.size}), lambda p: {value}) AS DOUBLE[{one.size}])"
    listed = f"string_split({column}, {_text(one.delimiter)})" if one.delimiter else column
    values = f"list_transform(coalesce({listed}, []), lambda x: coalesce(TRY_CAST(x AS DOUBLE), 0.0))"
    return f"CAST(list_resize({values}, {one.size}, 0.0) AS DOUBLE[{one.size}])"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def used_columns(inputs: Iterable[Input]) -> Mapping[str, None]:
    """Columns of the result that inputs take, in order."""
    return {one.column: None for one in inputs}
