"""From the flags of ``elasticdl evaluate`` and ``elasticdl predict`` to a job specification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.submission.flag_items import data_cache, parse_envs, split_secrets
from elasticdl.cli.submission.initial_model import KERAS_SUFFIX, initial_model_of, is_job, model_file, version_of_job
from elasticdl.cli.submission.plan_data import Progress, plan_data, reader_function
from elasticdl.cli.submission.preflight import check_destinations
from elasticdl.cli.submission.submit import Submission, model_of, shared_indices_of, storage_of
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.schema import DataSchema, spec_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.layout import export_folder
from elasticdl.shared.exported.reading import read_export
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags
from elasticdl.shared.job.options import values_for
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import InitialModel, JobSpec, PredictionSpec
from elasticdl.shared.names import JobId, job_name, new_job_id
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.storage import display, open_store, to_uri
from elasticdl.shared.words import did_you_mean, listed

TASKS_MAX = 50_000
"""Tasks of a prediction job. One message lists their files."""


def prepare(
    flags: EvaluateFlags | PredictFlags,
    root: Path | None,
    progress: Progress,
    job: JobId | None = None,
    version: tuple[InitialModel, JobSpec] | None = None,
    *,
    forks: ForkServers | None = None,
) -> Submission:
    """Check model, data and destinations, and plan the job. Leaves no file.

    Starts no process, unless the model file defines a reader for the data.

    Args:
        root: folder of the run directories; None: the job has none, because it runs on Kubernetes.
        version: the newest version of the model, and the job that has trained it, if they were read before.
        forks: their server of the workers starts a process that reads the data, if the model file does that.
    """
    flags.check()
    source = trained_by(*version) if version else find_model(flags.source, root, progress)
    if isinstance(flags, EvaluateFlags):
        return _submission(flags, root, progress, forks, job, source)
    output = to_uri(flags.output)
    if found := next(open_store(output).list(output.rstrip("/") + "/"), None):
        raise UserError(
            f"--output={flags.output} is not empty: it holds {display(found.uri)}",
            hint="Give another folder, or delete what is in it.",
            usage=True,
        )
    for name in flags.kept:
        if name == "prediction" or name.startswith("prediction_"):
            raise UserError(f"--keep_columns={name} has a name that predictions have, so it can't be kept", usage=True)
    kept = PredictionSpec(
        format=flags.output_format, keep_columns=flags.kept, processor=flags.prediction_outputs_processor
    )
    read = ",".join(dict.fromkeys((*listed(flags.columns), *flags.kept))) if flags.columns else ""
    flags = replace(flags, columns=read)
    submission = _submission(flags, root, progress, forks, job, source, output=output, prediction=kept)
    _check_kept(flags.kept, submission.data.schema)
    _check_tasks(submission.spec.validation)
    return submission


def _submission(
    flags: EvaluateFlags | PredictFlags,
    root: Path | None,
    progress: Progress,
    forks: ForkServers | None,
    job: JobId | None,
    source: TrainedModel,
    **facts: Any,
) -> Submission:
    """The job without what only one kind of job needs; ``facts`` are further fields of its specification."""
    model, digests = model_of(flags)
    flags = replace(flags, custom_data_reader=reader_function(flags, model))
    job = job or new_job_id(flags.job_name or job_name(f"{Path(model.path).stem}{flags.kind.name_suffix}"))
    storage = storage_of(flags, root, job)
    check_destinations(
        flags, RunDirectory(root, job) if root else None, output=facts.get("output", ""), storage=storage
    )
    cache = data_cache(flags)
    envs, secret_envs = split_secrets(parse_envs(flags.envs))
    data, _ = plan_data(flags, model, progress, forks, shared_indices_of(flags))
    plan = Plan(sources=data.sources, epochs=1, shuffle=Shuffle.NONE, seed=source.seed, **values_for("Plan", flags))
    schema = spec_of(data.schema, csv_header=flags.csv_header)
    spec = JobSpec(
        kind=flags.kind,
        job=job,
        created_s=SystemClock().now(),
        plan=replace(plan, sources=()),
        checksum=sum(index.total for index in data.indices) & ((1 << 64) - 1),
        data=schema,
        validation=plan,
        validation_data=schema,
        model=replace(model, exported=source.exported),
        storage=storage,
        envs=envs,
        initial=source.initial,
        **facts,
        **cache,
        **flags.job_values,
    )
    return Submission(spec=spec, model_files=digests, data=data, validation=None, secret_envs=secret_envs)


def _check_kept(kept: tuple[str, ...], schema: DataSchema) -> None:
    """Refuse columns that the data does not have."""
    there = schema.metadata.column_names
    if kept and not FORMATS[schema.format].has_columns:
        without = "its records have" if schema.reader else f"{FORMATS[schema.format].title} has"
        raise UserError(
            f"--keep_columns has no effect, because {without} no columns",
            hint="The predictions are in the order of the records: part-00000 holds the first ones.",
            usage=True,
        )
    for name in kept:
        if name not in there:
            hint = did_you_mean(name, there, f"Columns of the data: {', '.join(there)}.")
            raise UserError(f"--keep_columns={name}: the data has no such column", hint=hint, usage=True)


def _check_tasks(plan: Plan | None) -> None:
    if plan and plan.tasks > TASKS_MAX:
        least = -(-plan.records // (TASKS_MAX * plan.minibatch_size)) + 1
        raise UserError(
            f"the job would have {plan.tasks:,} tasks, and a file for each; it may have {TASKS_MAX:,}",
            hint=f"Give --num_minibatches_per_task={least} or more.",
            usage=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """Where the weights of a trained model are.

    Attributes:
        exported: URI of a ``.keras`` file; empty: in ``initial``.
        initial: the newest snapshots of a job, a SavedModel, or an export with tables in Parquet.
        seed: of the job that trained it. The embedding rows that it has never updated follow from it.
    """

    exported: str = ""
    initial: InitialModel | None = None
    seed: int = 0


def trained_by(version: InitialModel, job: JobSpec) -> TrainedModel:
    """The model that a version of a job's model is."""
    return TrainedModel(initial=replace(version, is_whole=True), seed=job.plan.seed)


def find_model(source: str, root: Path | None, progress: Progress) -> TrainedModel:
    """Find a trained model; ``root``: folder of the run directories; None: no job is found."""
    path = Path(source).expanduser()
    if "://" not in source and not path.exists():
        if path.suffix == ".keras" or "/" in source or root is None:
            raise UserError(f"--model={source} does not exist", usage=True)
        return trained_by(*version_of_job(source, root, progress))
    try:
        file = model_file("--model", source)
    except UserError:  # A folder without a model may have the name of a job.
        if root is None or not is_job(source, root):
            raise
        return trained_by(*version_of_job(source, root, progress))
    if file.endswith(KERAS_SUFFIX):
        return TrainedModel(exported=file)
    folder = export_folder(file)
    seed = read_export(folder).signature.seed if folder else 0
    return TrainedModel(initial=replace(initial_model_of(file), is_whole=True), seed=seed)
