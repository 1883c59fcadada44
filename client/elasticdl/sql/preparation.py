"""From a statement to what a job needs: rows in Parquet, fitted features, a model file and options.

The only module of the data half that the other half of ``elasticdl.sql`` calls, beside ``databases``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import count
from elasticdl.sql.columns.building import packed
from elasticdl.sql.columns.derivation import CLASSES_MAX, is_classification
from elasticdl.sql.columns.features import Features, Label, Task
from elasticdl.sql.columns.fitting import Fitter
from elasticdl.sql.columns.planning import ColumnReport, PlannedColumns, plan_columns
from elasticdl.sql.columns.prepared import prepare
from elasticdl.sql.columns.profile import Profile, profiles
from elasticdl.sql.databases import Database
from elasticdl.sql.databases.port import quoted
from elasticdl.sql.explaining import explain
from elasticdl.sql.network.catalogue import task_of
from elasticdl.sql.network.model_file import write_model_file
from elasticdl.sql.network.sizing import size_for
from elasticdl.sql.request import Request
from elasticdl.sql.scoring import PreparedRows, checked_labels, prepare_rows, write_predictions
from elasticdl.sql.snapshot import Snapshot, Split, take, write_rows
from elasticdl.sql.statements import Train

__all__ = [
    "ColumnReport",
    "PlannedTraining",
    "PreparedRows",
    "PreparedTraining",
    "explain",
    "plan_training",
    "prepare_rows",
    "prepare_training",
    "write_predictions",
]
_ROWS, _PART = "rows.parquet", "part.parquet"
_ROWS_FOR_VALIDATION = 10
"""A smaller table has no validation rows unless the statement asks for them."""
_PATIENCE_EPOCHS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraining:
    """What ``EXPLAIN PLAN`` shows of a training.

    Attributes:
        report: columns that are used, how, and those left out, why.
        options: of the job, where the statement does not give them.
    """

    report: tuple[ColumnReport, ...]
    task: Task
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTraining(PlannedTraining):
    """What a training job needs.

    Attributes:
        model_def: value of ``--model_def``.
        validation_data: None: there is none.
        features: ``features.json``, which later statements need.
    """

    model_def: str
    training_data: Path
    validation_data: Path | None
    features: Path


def prepare_training(
    statement: Train, database: Database, folder: Path, *, say: Callable[[str], None]
) -> PreparedTraining:
    """Read the rows, decide about their columns, fit features, and write data and model file.

    Args:
        folder: gets all files. It exists.
        say: gets lines about the progress.

    Raises:
        StatementError: names or values of the statement are wrong; all faults that were found.
        UserError: the rows can't be trained on.
    """
    with _Training(statement, database, folder, say) as training:
        return training.prepare()


def plan_training(statement: Train, database: Database) -> PlannedTraining:
    """Decide about columns as ``prepare_training`` does, and leave nothing behind."""
    with (
        tempfile.TemporaryDirectory(prefix="elasticdl-sql-") as folder,
        _Training(statement, database, Path(folder), lambda _: None) as training,
    ):
        return training.plan()


class _Training:
    """The preparation of one training; its temporary files are deleted at the end."""

    def __init__(self, statement: Train, database: Database, folder: Path, say: Callable[[str], None]) -> None:
        self._database = database
        self._folder = folder
        self._say = say
        self._statement = statement
        self._scratch = folder / "_scratch"
        self._open: list[Snapshot] = []

    def __enter__(self) -> _Training:
        return self

    def __exit__(self, *_: object) -> None:
        for snapshot in self._open:
            snapshot.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def plan(self) -> PlannedTraining:
        """See ``plan_training``."""
        features, columns, _, options = self._features()
        return PlannedTraining(report=tuple(columns.report), task=features.task, rows=self._rows.rows, options=options)

    def prepare(self) -> PreparedTraining:
        """See ``prepare_training``."""
        features, columns, split, options = self._features()
        validation = self._validation(split)  # Sorts rows, so it comes before what is left in memory by the next line.
        training_data = self._write(self._training, features, self._folder / "training" / _PART)
        data = None
        if validation is not None and validation.rows:
            data = self._write(validation, features, self._folder / "validation" / _PART)
            options |= {"save_best": "val_loss", "early_stopping_patience": _PATIENCE_EPOCHS}
        model, described = write_model_file(features, self._folder, self._request.copy_network)
        return PreparedTraining(
            model_def=str(model),
            training_data=training_data.parent,
            validation_data=data.parent if data else None,
            features=described,
            report=tuple(columns.report),
            task=features.task,
            rows=self._rows.rows,
            options=options,
        )

    def _features(self) -> tuple[Features, PlannedColumns, Split, dict[str, Any]]:
        schema = self._database.schema(self._statement.query.text)
        self._request = request = Request.of(self._statement, schema)
        self._rows = self._opened(take(self._database, self._statement.query.text, self._scratch / _ROWS, self._say))
        known = profiles(self._rows, exact=request.label)
        self._rows.close()
        task, why = self._task(known[request.label])
        split = request.split(stratified=task == "classification", default=self._rows.rows >= _ROWS_FOR_VALIDATION)
        self._training = self._opened(self._rows.part(self._scratch / "training.parquet", split, validation=False))
        if self._training.rows == 0:
            raise UserError("all rows are for validation, so there is none to train on", hint="Lower validation.split.")
        fitter = Fitter(self._training, {name: one.source for name, one in known.items()})
        columns = plan_columns(request, known, fitter)
        label = self._label(known[request.label], task, fitter, columns)
        for snapshot in self._open:
            snapshot.close()
        arguments, options = request.arguments(size_for, self._training.rows)
        features = Features(
            task=task,
            label=label,
            inputs=columns.inputs.all(),
            features=tuple(columns.features),
            network=request.network,
            arguments=arguments,
            rows=self._training.rows,
            packed=packed(columns.inputs.all(), columns.features),
        )
        columns.report.insert(0, ColumnReport(name=request.label, use="label", reason=f"{task}: {why}"))
        return features, columns, split, options

    def _opened(self, snapshot: Snapshot) -> Snapshot:
        self._open.append(snapshot)
        return snapshot

    def _task(self, profile: Profile) -> tuple[Task, str]:
        """Classification or regression, and why."""
        label, said = profile.name, task_of(self._request.network)
        if self._rows.rows == 0:
            raise UserError("the SELECT has no rows", hint="Check its WHERE.")
        if profile.nulls:
            # Comparisons, because SQLite and Postgres have no isfinite() of numbers.
            known = "BETWEEN -1e308 AND 1e308" if profile.source == "number" else "IS NOT NULL"
            raise UserError(
                f"the label {label!r} is NULL in {count(profile.nulls, 'row')} of {profile.rows:,}",
                hint=f"Leave them out: ... WHERE {quoted(label)} {known}",
            )
        if profile.source in ("numbers", "texts", "other", "null"):
            raise UserError(f"the label {label!r} is {profile.shown_type}, and a label is a number or a class")
        is_class, why = is_classification(profile)
        if said == "regression" and profile.source in ("text", "boolean") and not profile.numeric:
            raise UserError(
                f"{self._request.network} predicts numbers, and the label {label!r} is {profile.shown_type}",
                hint="Use DNNClassifier, or another network for classes.",
            )
        if said:
            is_class, why = said == "classification", f"{self._request.network}"
        if profile.source in ("date", "timestamp", "time") and not is_class:
            raise UserError(f"the label {label!r} is {profile.shown_type}: select a number made of it")
        if profile.distinct < 2 and profile.rows == 1:
            raise UserError("the SELECT has one row, so there is nothing to learn", hint="Select more rows.")
        if profile.distinct < 2:
            raise UserError(
                f"the label {label!r} has the same value in all {profile.rows:,} rows, so there is nothing to learn"
            )
        if is_class and profile.source == "text" and profile.unique and profile.rows >= _ROWS_FOR_VALIDATION:
            raise UserError(
                f"the label {label!r} has another text in each of the {profile.rows:,} rows, so no class can be learned"
            )
        if is_class and profile.distinct > CLASSES_MAX:
            raise UserError(
                f"the label {label!r} has {profile.distinct:,} classes, the limit is {CLASSES_MAX:,}",
                hint="If it is a quantity, use DNNRegressor.",
            )
        return ("classification" if is_class else "regression"), why

    def _label(self, profile: Profile, task: Task, fitter: Fitter, columns: PlannedColumns) -> Label:
        name = columns.inputs.reserve(profile.name)
        if task == "regression":
            shift, scale = fitter.label_moments(profile.name)
            return Label(name=name, column=profile.name, shift=shift, scale=scale)
        # Of all rows: a class may be among those for validation only.
        classes, counts = Fitter(self._rows, {}).classes(profile.name, CLASSES_MAX)
        expected = self._request.attributes.get("model.n_classes")
        if expected is not None and int(str(expected)) != profile.distinct:
            raise UserError(
                f"model.n_classes is {expected}, and the label {profile.name!r} has {profile.distinct:,} classes",
                hint="Leave model.n_classes out: it follows from the data.",
            )
        kinds = {"integer": "int64", "boolean": "bool", "number": "double", "decimal": "double"}
        class_type = kinds.get(profile.source, "string")
        return Label(name=name, column=profile.name, classes=classes, class_type=class_type, counts=counts)

    def _validation(self, split: Split) -> Snapshot | None:
        """The rows for validation; None: there are none."""
        if query := self._request.validation_select:
            rows = self._opened(take(self._database, query, self._scratch / "validation-rows.parquet", self._say))
            missing = [name for name in self._rows.schema.names if name not in rows.schema.names]
            if missing:
                raise UserError(f"validation.select has no column {missing[0]!r}, which the SELECT has")
            return rows
        if not split.share:
            return None
        return self._opened(self._rows.part(self._scratch / "validation.parquet", split, validation=True))

    def _write(self, rows: Snapshot, features: Features, file: Path) -> Path:
        """Write rows as the model takes them."""
        schema, batches = prepare(rows.batches(), rows.schema, features, has_label=True)
        write_rows(checked_labels(batches, features.label), schema, file)
        return file
