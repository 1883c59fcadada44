"""SHOW MODELS and DESCRIBE MODEL."""

from __future__ import annotations

from elasticdl.shared.words import moment
from elasticdl.sql.jobs import JobOfTraining, Jobs
from elasticdl.sql.registry import FinishedJob, ModelVersion, Registry, Training
from elasticdl.sql.results import Table
from elasticdl.sql.statements import ModelName

SUCCEEDED = "succeeded"
_METRICS_SHOWN = 3


def complete(registry: Registry, jobs: Jobs, model: str) -> list[tuple[Training, JobOfTraining | None]]:
    """Register what has been resumed and succeeded since; returns the trainings that are not finished."""
    found: dict[Training, JobOfTraining | None] = {}

    def finished(training: Training) -> FinishedJob | None:
        found[training] = job = jobs.find(training.export, training.read().options)
        return FinishedJob(job.job, job.metrics) if job and job.state == SUCCEEDED else None

    return [(training, found[training]) for training in registry.complete(model, finished)]


def find_model(registry: Registry, jobs: Jobs, name: ModelName) -> ModelVersion:
    """A version of a model, which may have been resumed since."""
    complete(registry, jobs, name.name.text)
    return registry.find(name)


def models(registry: Registry, jobs: Jobs) -> Table:
    """All versions of all models, and trainings that have none yet."""
    rows: list[tuple[str, ...]] = []
    for name in registry.names():
        unfinished = complete(registry, jobs, name)
        rows += [_version_row(each) for each in registry.versions(name)]
        rows += [_training_row(name, training, job) for training, job in unfinished if job is not None]
    names = ("model", "state", "network", "label", "rows", "metrics", "job", "created")
    return Table(names, tuple(rows))


def describe(version: ModelVersion) -> Table:
    """What is known of a version, one fact in a row."""
    record = version.record
    facts = [
        ("model", str(version)),
        ("statement", record.sql),
        ("database", record.database),
        ("network", record.network or "derived from the data"),
        ("task", record.task),
        ("label", ", ".join(record.label)),
        ("rows", f"{record.rows:,}"),
        *((f"column {name}", f"{use}: {reason}" if reason else use) for name, use, reason in record.columns),
        *((f"option {name}", str(value)) for name, value in record.options.items()),
        *((f"metric {name}", f"{value:.6g}") for name, value in version.metrics.items()),
        ("job", version.job),
        ("trained", moment(record.created_s)),
        ("registered", moment(version.registered_s)),
    ]
    return Table(("fact", "value"), tuple(fact for fact in facts if fact[1]))


def metrics_text(metrics: dict[str, float]) -> str:
    """The first metrics in one line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in list(metrics.items())[:_METRICS_SHOWN])


def _version_row(version: ModelVersion) -> tuple[str, ...]:
    record = version.record
    network = record.network or record.task
    label, rows = ", ".join(record.label), f"{record.rows:,}"
    metrics = metrics_text(dict(version.metrics))
    return str(version), "registered", network, label, rows, metrics, version.job, moment(version.registered_s)


def _training_row(name: str, training: Training, job: JobOfTraining) -> tuple[str, ...]:
    record = training.read()
    state = f"{job.state}: {job.resume}" if job.resume else job.state
    label, rows = ", ".join(record.label), f"{record.rows:,}"
    return name, state, record.network or record.task, label, rows, "", job.job, moment(record.created_s)
