"""``elasticdl export``: writes the model of a job that has ended from its snapshots, without training."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.report import exported_text
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.ended_job import EndedJob, list_of_versions, read_ended_job
from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.model_check import CheckRuntime, export_model
from elasticdl.cli.local.processes.environment import job_environment
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.preflight import check_apart, check_writable, data_paths
from elasticdl.cli.submission.source_check import changed_model_files, check_data
from elasticdl.ps.snapshots.kept_versions import write_version
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.exported.owner import OutputOwner
from elasticdl.shared.job.spec import ExportTables
from elasticdl.shared.model.whole_model import saved_model_uri
from elasticdl.shared.process.model_check import MODEL_FILE, PARTS_FILE, SIGNATURE_FILE
from elasticdl.shared.storage import display, join, to_uri
from elasticdl.shared.storage.file_store import translate


def export(job: str, root: Path, settings: ExportSettings) -> None:
    """Run the command.

    Raises:
        ElasticDLError: the job is running, its data changed, it has no such version, its model file is missing or makes
            other variables, or the output can't be written.
    """
    settings.check()
    check_extras()
    console = JobConsole()
    output = to_uri(settings.output) if settings.output else ""
    run = run_directory.find(root, job)
    record = run.read()
    run_directory.enter(record)
    if output:
        check_apart(f"--output={settings.output}", join(output, "file"), data_paths(record))
    changed = changed_model_files(run, record)
    with run.lock():
        job_with_model = read_ended_job(run, record)
        if changed:
            console.print_line(
                f"{changed} changed since job {run.job} was planned. The model is exported with its present code."
            )
        write_model(
            job_with_model,
            run,
            replace(settings, output=output),
            console.print_line,
            is_changed=bool(changed),
            secret_envs=record.secret_envs,
        )


def write_model(
    job: EndedJob,
    run: RunDirectory,
    settings: ExportSettings,
    show: Callable[[str], None],
    *,
    is_changed: bool = False,
    secret_envs: Mapping[str, str] | None = None,
    logs_stay: bool = True,
) -> None:
    """Write a version of a job's model to the output.

    Args:
        is_changed: the model file is another one than at the start of the job; its variables have to be the same.
        secret_envs: what ``--envs`` gave the job and its log lacks.
        logs_stay: whether the user can read the logs afterwards.
    """
    output = settings.output or job.spec.output
    if not output:
        raise UserError(
            f"job {job.former.job} was run without --output, so there is no folder to export to",
            hint=f"Give one: elasticdl export {job.former.arguments} --output=DIR",
            usage=True,
        )
    if not settings.output:
        OutputOwner(job=job.spec.job, started_s=job.spec.created_s).check(output)
    check_data(job.spec, show)
    check_writable(f"the output {display(output)}", output)
    with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as name:
        folder = Path(name)
        try:
            what, tables = _write_version(job, settings, folder)
        except OSError as error:
            raise translate(error, to_uri(folder)) from error
        show(f"Exporting {what} of job {job.former.job}.")
        environment = job_environment(
            {**os.environ, "TMPDIR": name}, job.spec, run, "", {**job.spec.envs, **(secret_envs or {})}
        )
        runtime = CheckRuntime(
            starter=Spawner(), environment=environment, logs=run.logs, show=show, logs_stay=logs_stay
        )
        # The best model is saved as a whole, but this one is exported.
        best = None if tables is ExportTables.PARQUET else job.spec.best
        model = replace(job.spec.model, fingerprint=b"") if is_changed else job.spec.model
        spec = replace(job.spec, model=model, output=output, export_tables=tables, best=best)
        result = export_model(spec, folder, runtime)
    for note in result.notes:
        show(note)
    show(f"The model is in {exported_text(display(output), tables.value)}.")


def _write_version(job: EndedJob, settings: ExportSettings, folder: Path) -> tuple[str, ExportTables]:
    """Write the wanted version into local files; returns its name for people, and where its tables will be."""
    file = folder / MODEL_FILE
    if job.versions:
        (folder / SIGNATURE_FILE).write_text(job.versions[0].signature.to_json())
    if settings.best:
        return _write_best(job, file), ExportTables.MODEL
    version = job.version(settings.step)
    tables = settings.tables_of(job.spec, version.signature)
    try:
        write_version(job.store, job.spec, version, file, has_tables=tables is ExportTables.MODEL)
    except PermanentError as error:
        others = [one for one in job.versions if one is not version]
        kept = f"{list_of_versions(others)} To export one of these, give --step."
        hint = kept if others else "No other version is kept."
        raise UserError(f"the model at step {version.step} can't be read: {error}", hint=hint) from error
    plan = job.state.plan if job.state.spec else job.spec.plan
    least, most = version.steps
    parts = "" if least == most else f" (parameter servers saved their parts at steps {least:,} to {most:,})"
    if tables is ExportTables.PARQUET:
        chosen = [(part.manifest, part.partitions) for part in version.as_initial_model(job.former.job).parts]
        (folder / PARTS_FILE).write_text(json.dumps(chosen))
    return f"the model at step {version.step:,} of {plan.batches:,}{parts}", tables


def _write_best(job: EndedJob, file: Path) -> str:
    best, saved = job.spec.best, job.state.best.saved
    newest = f"Without --best, the newest snapshot is exported: elasticdl export {job.former.arguments}"
    if best is None or not best.save:
        raise UserError(f"job {job.former.job} was run without --save_best, so it keeps no best model", hint=newest)
    if not saved:
        raise UserError(f"job {job.former.job} has no best model: none of its evaluations has saved one", hint=newest)
    file.write_bytes(job.store.read(saved_model_uri(job.spec.storage, saved)))
    step = next((one.step for one in job.state.evaluations if one.number == saved), 0)
    return f"the best model (val_{best.metric} {job.state.best.saved_value:.6g} at step {step:,})"
