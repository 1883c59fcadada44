"""Statements that need a job: rows to a snapshot, a job over it, and its result to the registry or to a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.names import job_name
from elasticdl.shared.storage import to_uri
from elasticdl.shared.storage.uris import local_path
from elasticdl.shared.words import count, listed
from elasticdl.sql.attributes import CheckedAttributes, with_current_names
from elasticdl.sql.checking import checked, schema_of, version_of
from elasticdl.sql.jobs import KUBERNETES, JobRefusedError, flags_of_command
from elasticdl.sql.registry import WORK, FinishedJob, Training, TrainingRecord
from elasticdl.sql.results import Result, Table, from_arrow, metrics_table
from elasticdl.sql.statements import (
    Evaluate,
    Explain,
    ExplainPlan,
    JobStatement,
    ModelName,
    Predict,
    Train,
)
from elasticdl.sql.workspace import Workspace

if TYPE_CHECKING:
    from elasticdl.sql.databases.port import Database
    from elasticdl.sql.preparation import PlannedTraining, PreparedTraining
    from elasticdl.sql.run import Session

_UNWRITTEN, _PREDICTIONS = "unwritten", "predictions"
"""Folder of the registry, and name of the table, for predictions that a database did not take."""
_REPORT, _MODEL = "report.json", "model"
_NO_JOB = "TO EXPLAIN runs no job: this process computes the importances.\n"
_TOKEN = 6
"""Last characters of a training's id, which are in the names of its job on Kubernetes."""


def run(session: Session, statement: JobStatement | ExplainPlan, text: str) -> Result:
    """Run one statement; see ``Session.run``."""
    match statement:
        case Train():
            return _train(session, statement, text)
        case Predict():
            return _predict(session, statement, text)
        case Evaluate():
            return _evaluate(session, statement, text)
        case Explain():
            return _explain(session, statement, text)
        case ExplainPlan(inner):
            return _plan(session, inner, text)
    assert_never(statement)


def _train(session: Session, statement: Train, text: str) -> Result:
    from elasticdl.sql.preparation import prepare_training

    database = session.databases.of_query(statement.query.text)
    found = checked(session, statement, database)
    initial = _initial_model(session, statement)
    statement = replace(statement, attributes=with_current_names(statement.attributes))
    training = session.registry.begin(statement.into.text)
    job: dict[str, Any] = {**session.options, **found.options}
    is_cluster = job.get("platform") == KUBERNETES
    suffix = f"-{training.id[-_TOKEN:]}" if is_cluster else ""
    name = job_name(str(job.pop("job_name", statement.into.text)), otherwise="model", suffix=suffix)
    options: dict[str, Any] = {}
    try:
        session.display.line(f"Reading the rows of the SELECT from {database.url}.")
        prepared = prepare_training(statement, database, training.folder, say=session.display.line)
        columns = _columns(prepared)
        session.display.table(f"Columns of {count(prepared.rows, 'row')}", ("column", "use", "reason"), columns)
        options = _options("train", {"job_name": name, **prepared.options, **initial, **job})
        record = _record(statement, text, database, prepared, options)
        training.workspace.push()
        training.write(record)
        flags = {
            **options,
            "model_def": prepared.model_def,
            "training_data": _place(training.workspace, prepared.training_data),
            "validation_data": _place(training.workspace, prepared.validation_data),
            "output": training.export,
        }
        ended = session.jobs.run("train", flags, training.folder / _REPORT)
    except BaseException as error:
        is_gone = not is_cluster or isinstance(error, JobRefusedError) or not options
        if is_gone and session.jobs.find(training.export, options) is None:
            session.registry.discard(training)
        raise
    version = session.registry.register(training, FinishedJob(ended.job, ended.metrics))
    shown = _selected(ended.metrics, found)
    session.display.line(f"Registered {version}. To predict with it: SELECT ... TO PREDICT table USING {version}")
    return Result(
        statement=text,
        kind="train",
        table=metrics_table(shown),
        model=str(version),
        job=ended.job,
        metrics=shown,
        columns=columns,
        rows=prepared.rows,
    )


def _record(
    statement: Train, text: str, database: Database, prepared: PreparedTraining, options: Mapping[str, Any]
) -> TrainingRecord:
    return TrainingRecord(
        model=statement.into.text,
        sql=text,
        database=database.url,
        created_s=time.time(),
        network=statement.model.text if statement.model else "",
        model_def=Path(prepared.model_def).name,
        features=prepared.features.name,
        task=prepared.task,
        label=tuple(each.text for each in statement.label),
        rows=prepared.rows,
        columns=_columns(prepared),
        options={name: str(value) for name, value in options.items()},
    )


def _columns(planned: PlannedTraining) -> tuple[tuple[str, str, str], ...]:
    """Name, use and reason of each column."""
    return tuple((each.name, each.use, each.reason) for each in planned.report)


def _initial_model(session: Session, statement: Train) -> dict[str, Any]:
    """The option for a warm start."""
    if statement.using is None:
        return {}
    return {"initial_model": _model(session, statement.using).training.export}


def _predict(session: Session, statement: Predict, text: str) -> Result:
    from elasticdl.sql.databases.folder import FolderDatabase
    from elasticdl.sql.preparation import prepare_rows, write_predictions

    model, database = _model(session, statement.using), session.databases.of_query(statement.query.text)
    found = checked(session, statement, database)
    with _work(session) as work:
        model_def, features = model.definition(work.folder)
        prepared = prepare_rows(statement.query.text, database, features, work.folder / "rows", label=False)
        flags = {
            "job_name": job_name(model.record.model, otherwise="model", suffix="-predict"),
            **_options("predict", {**session.options, **found.options}),
            "model_def": model_def,
            "model": model.training.export,
            "prediction_data": _push(work, prepared.data),
            "output": work.place(_PREDICTIONS),
        }
        ended = session.jobs.run("predict", flags, work.folder / _REPORT)
        write = partial(
            write_predictions,
            work.pull(_PREDICTIONS),
            prepared,
            column=statement.column.text if statement.column else None,
            features=features,
            probabilities=bool(found.settings.get("predict.probabilities")),
        )
        try:
            rows = write(database, into=statement.into.text)
        except UserError as error:
            kept = session.registry.root / _UNWRITTEN / ended.job
            write(FolderDatabase(kept), into=_PREDICTIONS)
            raise UserError(
                f"the table {statement.into} can't be written in {database.url}: {error.args[0]}",
                hint=f"The predictions are kept as the table {_PREDICTIONS}: elasticdl sql --database={kept}",
            ) from error
    session.display.line(f"Wrote {count(rows, 'row')} to the table {statement.into} in {database.url}.")
    return Result(statement=text, kind="predict", model=model.name, job=ended.job, into=statement.into.text, rows=rows)


def _evaluate(session: Session, statement: Evaluate, text: str) -> Result:
    from elasticdl.sql.preparation import prepare_rows

    model, database = _model(session, statement.using), session.databases.of_query(statement.query.text)
    found = checked(session, statement, database)
    _check_label(statement, model.record)
    with _work(session) as work:
        model_def, features = model.definition(work.folder)
        prepared = prepare_rows(statement.query.text, database, features, work.folder / "rows", label=True)
        flags = {
            "job_name": job_name(model.record.model, otherwise="model", suffix="-evaluate"),
            **_options("evaluate", {**session.options, **found.options}),
            "model_def": model_def,
            "model": model.training.export,
            "validation_data": _push(work, prepared.data),
        }
        ended = session.jobs.run("evaluate", flags, work.folder / _REPORT)
    metrics = _selected(ended.metrics, found)
    if statement.into:
        _write_metrics(database, statement.into.text, metrics)
        session.display.line(f"Wrote the metrics to the table {statement.into} in {database.url}.")
    return Result(
        statement=text,
        kind="evaluate",
        table=metrics_table(metrics),
        model=model.name,
        job=ended.job,
        metrics=metrics,
        into=statement.into.text if statement.into else "",
        rows=prepared.rows,
    )


def _check_label(statement: Evaluate, record: TrainingRecord) -> None:
    if statement.label and statement.label.text not in record.label:
        raise UserError(
            f"the model {record.model} was trained with LABEL {', '.join(record.label)}, not {statement.label}",
            hint="Leave LABEL out, or name the column in the SELECT as it was named then.",
        )


def _write_metrics(database: Database, table: str, metrics: Mapping[str, float]) -> None:
    """Write one row that has a column for each metric, as SQLFlow did."""
    import pyarrow as pa

    rows = pa.table({name: pa.array([value], pa.float64()) for name, value in metrics.items()})
    database.write(table, rows.schema, rows.to_batches())


def _explain(session: Session, statement: Explain, text: str) -> Result:
    from elasticdl.sql.plots import plot, plot_files
    from elasticdl.sql.preparation import explain

    model, database = _model(session, statement.using), session.databases.of_query(statement.query.text)
    plots = plot_files(checked(session, statement, database).settings.get("explain.plot"))
    with _work(session) as work:
        importances = explain(
            statement.query.text,
            database,
            model.training.exported(work.folder / _MODEL),
            model.definition(work.folder)[1],
            work.folder,
            explainer=statement.explainer.text if statement.explainer else "",
            say=session.display.line,
        )
    if statement.into:
        database.write(statement.into.text, importances.schema, importances.to_batches())
        session.display.line(
            f"Wrote {count(importances.num_rows, 'row')} to the table {statement.into} in {database.url}."
        )
    for file in plots:
        plot(importances, file, model.name)
        session.display.line(f"Wrote the plot {file}.")
    into = statement.into.text if statement.into else ""
    return Result(statement=text, kind="explain", table=from_arrow(importances), model=model.name, into=into)


def _plan(session: Session, statement: JobStatement, text: str) -> Result:
    database = session.databases.of_query(statement.query.text)
    found = checked(session, statement, database)
    command = type(statement).__name__.lower()
    if isinstance(statement, Train):
        from elasticdl.sql.preparation import plan_training

        initial = _initial_model(session, statement)
        planned = plan_training(replace(statement, attributes=with_current_names(statement.attributes)), database)
        rows = _columns(planned)
        options = _options(command, {**planned.options, **initial, **session.options, **found.options})
        data = {
            "training_data": "the rows of the SELECT, as Parquet",
            "output": f"the next version of {statement.into}",
        }
        return Result(
            statement=text,
            kind="explain plan",
            table=Table(("column", "use", "reason"), rows),
            text=_job_file(command, {"job_name": job_name(statement.into.text, otherwise="model"), **options, **data}),
            columns=rows,
        )
    model = _model(session, statement.using)
    schema = schema_of(session, database, statement.query)
    rows = tuple((each.name, str(each.type), "") for each in schema)
    values: dict[str, Any] = {"model": model.training.export}
    if not isinstance(statement, Explain):
        values |= _options(command, {**session.options, **found.options})
    return Result(
        statement=text,
        kind="explain plan",
        table=Table(("column", "type", "reason"), rows),
        text=_NO_JOB if isinstance(statement, Explain) else _job_file(command, values),
        model=model.name,
    )


def _job_file(command: str, values: Mapping[str, Any]) -> str:
    import yaml

    plain = {name: value if isinstance(value, (bool, int, float)) else str(value) for name, value in values.items()}
    return f"# elasticdl {command}\n{yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)}"


class _Model:
    """A trained model: a version, or the folder of a training."""

    def __init__(self, name: str, training: Training, record: TrainingRecord) -> None:
        self.name, self.training, self.record = name, training, record

    def definition(self, folder: Path) -> tuple[Path, Path]:
        """The model file and the fitted columns; ``folder``: for those that are in object storage."""
        found = self.training.definition(folder / _MODEL)
        return found / self.record.model_def, found / self.record.features


def _model(session: Session, name: ModelName) -> _Model:
    """The model of USING.

    Raises:
        UserError: there is none.
    """
    if "/" in name.name.text and name.version is None:
        training = _training_in(name.name.text, session.registry.root / WORK)
        return _Model(name.name.text, training, training.read())
    version = version_of(session, name)
    return _Model(str(version), session.registry.training(version), version.record)


def _training_in(place: str, scratch: Path) -> Training:
    """The training in a folder or at an address, or above it: that of the exported model can be given, too."""
    uri = to_uri(place).rstrip("/")
    above = uri.rpartition("/")[0]
    for each in (uri, above):
        training = Training(Workspace(local_path(each) if each.startswith("file:") else scratch, each))
        if training.exists():
            return training
    return Training(Workspace(scratch, uri))


@contextmanager
def _work(session: Session) -> Iterator[Workspace]:
    """A folder for the rows and results of a statement, which is deleted at its end."""
    work = session.registry.work()
    try:
        yield work
    finally:
        work.remove()


def _place(workspace: Workspace, path: Path | None) -> str | None:
    """Where a job finds what is in a workspace; None: nothing."""
    return workspace.place(*path.relative_to(workspace.folder).parts) if path else None


def _push(workspace: Workspace, path: Path) -> str:
    return workspace.push(*path.relative_to(workspace.folder).parts)


def _options(command: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job, without those that are not given.

    Raises:
        ElasticDLError: the job has no such option. It was derived from the data, so the fault is in this package.
    """
    known = flags_of_command(command)
    if unknown := [name for name in values if name not in known]:
        raise ElasticDLError(f"elasticdl {command} has no option {unknown[0]!r}")
    return {name: value for name, value in values.items() if value is not None}


def _selected(metrics: Mapping[str, float], attributes: CheckedAttributes) -> dict[str, float]:
    """The metrics that ``validation.metrics`` asks for; all of them if the job has none of these."""
    asked = attributes.settings.get("validation.metrics")
    if not asked:
        return dict(metrics)
    names = asked if isinstance(asked, tuple) else listed(str(asked))
    wanted = {str(name).strip().lower() for name in names}
    selected = {name: value for name, value in metrics.items() if name.lower().removeprefix("val_") in wanted}
    return selected or dict(metrics)
