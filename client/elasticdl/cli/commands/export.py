"""``elasticdl export``: writes the model of a job that has ended from its snapshots, without training."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs import run_directory, working_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.resumption import recover_without_log
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.model_check import CheckRuntime, export_model
from elasticdl.cli.local.processes.environment import job_environment
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.preflight import check_apart, check_writable
from elasticdl.cli.submission.source_check import check_data, check_model_files
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.ps.snapshots.kept_versions import KeptVersion, kept_versions, write_version
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.errors import PermanentError, ProtocolError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.model.whole_model import saved_model_uri
from elasticdl.shared.process.model_check import MODEL_FILE
from elasticdl.shared.storage import ObjectStore, display, join, open_store, to_uri
from elasticdl.shared.storage.file_store import translate


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What to export.

    Attributes:
        output: folder for the model; empty: that of the job.
        best: the best evaluated version, which a job with ``--save_best`` keeps.
        step: the version of this step; None: the newest one.
    """

    output: str = ""
    best: bool = False
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job that has ended.

    Attributes:
        run: its folder.
        spec: as it was submitted.
        state: as its log describes it; empty if the log is lost.
        registers: of its ps.
        store: where its snapshots are.
    """

    run: RunDirectory
    spec: JobSpec
    state: State
    registers: Sequence[PsRegister]
    store: ObjectStore


def export(job: str, root: Path, settings: ExportSettings) -> None:
    """Run the command.

    Args:
        job: id or name.
        root: folder of the run directories.
        settings: what to export.

    Raises:
        ElasticDLError: the job is running, its data or its model file changed, it has no such version, or the output
            can't be written.
    """
    if settings.best and settings.step is not None:
        raise UserError("--best and --step can't be given together", usage=True)
    check_extras()
    console = JobConsole()
    output = to_uri(settings.output) if settings.output else ""
    run = run_directory.find(root, job)
    record = run.read()
    working_directory.enter(record)
    if output:
        check_apart(f"--output={settings.output}", join(output, "file"), split_paths(record.training_data))
    check_model_files(run, record)
    with run.lock():
        past = asyncio.run(_read(run, record))
        output = output or past.spec.output
        if not output:
            raise UserError(
                f"job {run.job} was run without --output, so there is no folder to export to",
                hint=f"Give one: elasticdl export {run.arguments} --output=DIR",
                usage=True,
            )
        check_data(run, past.spec, console.print_line)
        check_writable(f"the output {display(output)}", output)
        with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as name:
            folder = Path(name)
            try:
                what = _write_version(past, settings, folder / MODEL_FILE)
            except OSError as error:
                raise translate(error, to_uri(folder)) from error
            console.print_line(f"Exporting {what} of job {run.job}.")
            environment = job_environment({**os.environ, "TMPDIR": name}, past.spec, run, "")
            show = console.print_line
            runtime = CheckRuntime(starter=Spawner(), environment=environment, logs=run.logs, show=show)
            result = export_model(replace(past.spec, output=output), folder, runtime)
        for note in result.notes:
            console.print_line(note)
        console.print_line(f"The model is in {display(output)}: saved_model and model.keras.")


async def _read(run: RunDirectory, record: JobRecord) -> _Job:
    """Read the log and the registers; without a log, the snapshots."""
    store = open_store(record.storage)
    async with open_bus(run, held=True) as bus:
        try:
            state = (await recover(bus)).state
        except (PermanentError, ProtocolError):
            state = State()
        if state.spec is not None:
            entries = [await bus.registers.read(ps) for ps in state.holders]
            registers = [decode_register(entry.value) for entry in entries if entry]
            return _Job(run=run, spec=await read_spec(bus.log), state=state, registers=registers, store=store)
    recovered = await recover_without_log(run, store, record.storage)
    return _Job(run=run, spec=recovered.spec, state=state, registers=[*recovered.registers.values()], store=store)


def _write_version(job: _Job, settings: ExportSettings, file: Path) -> str:
    """Write the wanted version into a local file; returns its name for people."""
    if settings.best:
        return _write_best(job, file)
    versions = kept_versions(job.store, job.spec, job.registers)
    version = _chosen(job, versions, settings.step)
    try:
        write_version(job.store, job.spec, version, file)
    except PermanentError as error:
        others = [one for one in versions if one is not version]
        hint = f"{_list(others)} To export one of these, give --step." if others else "No other version is kept."
        raise UserError(f"the model at step {version.step} can't be read: {error}", hint=hint) from error
    plan = job.state.plan if job.state.spec else job.spec.plan
    least, most = version.steps
    parts = "" if least == most else f" (parameter servers saved their parts at steps {least:,} to {most:,})"
    return f"the model at step {version.step:,} of {plan.batches:,}{parts}"


def _chosen(job: _Job, versions: Sequence[KeptVersion], step: int | None) -> KeptVersion:
    if not versions:
        raise UserError(
            f"job {job.run.job} has no complete snapshot to export in {display(job.spec.storage)}",
            hint="A job saves its first snapshot when its parameter servers have the initial weights.",
        )
    if step is None:
        return versions[0]
    for version in versions:
        if version.step == step:
            return version
    raise UserError(f"job {job.run.job} keeps no model of step {step:,}", hint=_list(versions), usage=True)


def _list(versions: Sequence[KeptVersion]) -> str:
    return f"Versions that are kept: step {', '.join(str(version.step) for version in reversed(versions))}."


def _write_best(job: _Job, file: Path) -> str:
    best, saved = job.spec.best, job.state.best.saved
    newest = f"Without --best, the newest snapshot is exported: elasticdl export {job.run.arguments}"
    if best is None or not best.save:
        raise UserError(f"job {job.run.job} was run without --save_best, so it keeps no best model", hint=newest)
    if not saved:
        raise UserError(f"job {job.run.job} has no best model: none of its evaluations has saved one", hint=newest)
    file.write_bytes(job.store.read(saved_model_uri(job.spec.storage, saved)))
    step = next((one.step for one in job.state.evaluations if one.number == saved), 0)
    return f"the best model (val_{best.metric} {job.state.best.saved_value:.6g} at step {step:,})"
