"""Rows for a trained model, and its predictions as a table beside the rows they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import PermanentError, UserError, file_errors
from elasticdl.shared.words import count, did_you_mean, some_of
from elasticdl.sql.columns.features import Features, Label
from elasticdl.sql.columns.prepared import expression, prepare, used_columns
from elasticdl.sql.columns.profile import source_of
from elasticdl.sql.databases import Database
from elasticdl.sql.databases.port import quoted
from elasticdl.sql.request import find_column
from elasticdl.sql.snapshot import Snapshot, take, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

_PREDICTION = "prediction"
"""Column of the job's predictions."""
_SHOWN_MAX = 8
_ROWS_AT_ONCE = 10_000
_PROBABILITIES_SUFFIX = "_probabilities"
_FROM_TEXT = {"number": "number", "day": "date"}
"""Kinds of inputs that texts are converted to -> what they are then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """Rows for a prediction or an evaluation.

    Attributes:
        data: folder of the rows as the model takes them.
        kept: file of the rows as they were selected, in the same order.
    """

    data: Path
    kept: Path
    rows: int


def prepare_rows(query: str, database: Database, features: Path, folder: Path, *, label: bool) -> PreparedRows:
    """Read rows and make of them what the model takes, with the parameters of its training.

    Args:
        features: the model's ``features.json``.
        label: whether the rows need a label.

    Raises:
        UserError: the rows lack a column that the model takes, or a label is none of its classes.
    """
    with file_errors(f"{features} can't be read", PermanentError):
        known = Features.of_json(features.read_text("utf-8"))
    schema = database.schema(query)
    check_columns(schema, known, label=label)
    rows = take(database, query, folder / "kept.parquet", lambda _: None)
    try:
        if rows.rows == 0:
            raise UserError("the SELECT has no rows", hint="Check its WHERE.")
        _check_texts(rows, known)
        schema = _renamed(rows.schema, known)
        wanted = known.label if label else None
        data = folder / "data" / "part.parquet"
        batches = (_as(batch, schema) for batch in rows.batches())
        types, prepared = prepare(batches, schema, known, has_label=label)
        write_rows(checked_labels(prepared, wanted), types, data)
    finally:
        rows.close()
    return PreparedRows(data=data.parent, kept=rows.file, rows=rows.rows)


def check_columns(schema: pa.Schema, features: Features, *, label: bool) -> None:
    """Raises ``UserError``: a column that the model takes is missing, or is of a kind that it can't take."""
    wanted = [*used_columns(features.inputs), *((features.label.column,) if label else ())]
    missing = [name for name in wanted if not find_column(name, schema)]
    if missing:
        others = [name for name in schema.names if name.lower() not in {each.lower() for each in wanted}]
        hint = did_you_mean(missing[0], others, "Select the columns of the training, under the same names.")
        raise UserError(f"the SELECT lacks columns that the model takes: {some_of(missing, _SHOWN_MAX)}", hint=hint)
    lists = ("numbers", "texts")
    for one in features.inputs:
        field = schema.field(find_column(one.column, schema))
        source = source_of(field.type)
        is_list = one.source in lists
        if source == "other" or (source != "null" and is_list is not (source in lists)):
            raise UserError(f"column {one.column!r} is {field.type}, and was {one.source} when the model was trained")


def _check_texts(rows: Snapshot, features: Features) -> None:
    """Raises ``UserError``: none of a column's texts is the number or the date that the model takes."""
    names = {name: find_column(name, rows.schema) for name in used_columns(features.inputs)}
    types = {name: source_of(rows.schema.field(here).type) for name, here in names.items()}
    inputs = [one for one in features.inputs if one.kind in _FROM_TEXT and types[one.column] == "text"]
    if not inputs:
        return
    counts = [f"count({each})" for one in inputs for each in (quoted(one.column), expression(one, "text"))]
    found = [column[0].as_py() for column in rows.query(counts).columns]
    for one, texts, converted in zip(inputs, found[::2], found[1::2], strict=True):
        if texts and not converted:
            raise UserError(
                f"column {one.column!r} has {count(texts, 'text')}, none of which is a {_FROM_TEXT[one.kind]}, "
                "as they were when the model was trained",
                hint="Is it another column under this name?",
            )


def checked_labels(batches: Iterable[pa.RecordBatch], label: Label | None) -> Iterator[pa.RecordBatch]:
    """The rows, if each has a label.

    Raises:
        UserError: a label is NULL, or no class of the model.
    """
    for batch in batches:
        if label is not None and (wrong := batch.column(label.name).null_count):
            known = (
                f" or no class of the model, which knows {some_of(label.classes, _SHOWN_MAX)}" if label.classes else ""
            )
            raise UserError(
                f"the label {label.column!r} is NULL in {count(wrong, 'row')} of {batch.num_rows:,}{known}",
                hint=f'Leave them out: ... WHERE "{label.column}" IS NOT NULL',
            )
        yield batch


def write_predictions(
    predictions: Path,
    prepared: PreparedRows,
    database: Database,
    *,
    into: str,
    column: str | None,
    features: Path,
    probabilities: bool,
) -> int:
    """Write the selected rows with their predictions as a table, which replaces one of that name atomically.

    Args:
        predictions: output folder of the prediction job.
        column: of the class or the value; None: ``predicted_LABEL``.
        probabilities: also write the probability of each class, as a list in the order of the classes.

    Returns:
        The number of rows.
    """
    import pyarrow.parquet as pq

    known = Features.of_json(features.read_text("utf-8"))
    kept = pq.read_schema(prepared.kept)
    made = _Predicted(known.label, probabilities)
    name = column or f"predicted_{known.label.column}"
    fields = [field for field in kept if field.name.lower() != name.lower()]
    schema = made.schema(fields, name)

    def rows() -> Iterator[pa.RecordBatch]:
        for row, values in _aligned(prepared.kept, predictions):
            yield made.batch([row.column(field.name) for field in fields], values, schema)

    return database.write(into, schema, rows())


class _Predicted:
    """Columns of predictions: of the class in the label's type, or of the value."""

    def __init__(self, label: Label, probabilities: bool) -> None:
        self._label = label
        self._probabilities = probabilities and bool(label.classes)

    def schema(self, kept: Sequence[pa.Field], name: str) -> pa.Schema:
        """Of the table."""
        import pyarrow as pa

        types = {"int64": pa.int64(), "bool": pa.bool_(), "double": pa.float64(), "string": pa.string()}
        kind = types[self._label.class_type] if self._label.classes else pa.float64()
        added = [pa.field(name, kind)]
        if self._probabilities:
            added.append(pa.field(name + _PROBABILITIES_SUFFIX, pa.list_(pa.float64())))
        return pa.schema([*kept, *added])

    def batch(self, kept: Sequence[pa.Array], predictions: Any, schema: pa.Schema) -> pa.RecordBatch:
        """Rows with their predictions.

        Args:
            predictions: NumPy array of shape (rows,), or (rows, classes).
        """
        import numpy as np
        import pyarrow as pa

        if not self._label.classes:
            return pa.RecordBatch.from_arrays([*kept, pa.array(predictions, pa.float64())], schema=schema)
        if predictions.ndim == 1:
            predictions = np.stack([1 - predictions, predictions], axis=1)
            numbers = (predictions[:, 1] > 0.5).astype(np.int64)  # As the job's own metrics count it.
        else:
            numbers = predictions.argmax(axis=1)
        place = len(kept)
        texts = pa.array(self._label.classes, pa.string()).take(pa.array(numbers))
        columns = [*kept, texts.cast(schema.field(place).type)]
        if self._probabilities:
            columns.append(pa.array(list(predictions.astype(np.float64)), schema.field(place + 1).type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _aligned(kept: Path, predictions: Path) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Rows and their predictions, which are in the same order, some at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[Any] = []
    files = sorted(predictions.glob("part-*.parquet"))

    def values() -> Iterator[Any]:
        for file in files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=[_PREDICTION]):
                    column = batch.column(0)
                    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type):
                        yield column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
                    else:
                        yield column.to_numpy(zero_copy_only=False)

    source = values()
    with pq.ParquetFile(kept) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            while sum(map(len, waiting)) < batch.num_rows:
                waiting.append(next(source))
            joined = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            yield batch, joined[: batch.num_rows]
            waiting = [joined[batch.num_rows :]] if len(joined) > batch.num_rows else []


def _renamed(schema: pa.Schema, features: Features) -> pa.Schema:
    """The schema with the names of the training where only the case of letters differs."""
    names = {find_column(name, schema): name for name in (*used_columns(features.inputs), features.label.column)}
    return schema if not names else _with_names(schema, names)


def _with_names(schema: pa.Schema, names: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
