"""``elasticdl resume``: runs a job again from its latest snapshots."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli.background import Accept
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.history import lost_history
from elasticdl.cli.display.quantities import count
from elasticdl.cli.jobs import run_directory, working_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.resumption import lost_part, recover_without_log, resume_event
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import RunOptions, run_job
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.preflight import check_apart, check_report, check_writable, data_paths
from elasticdl.cli.submission.source_check import check_data, check_model_files
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.shared.bus.reading import record_at
from elasticdl.shared.errors import PermanentError, ProtocolError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Event, JobResumed, JobSubmitted
from elasticdl.shared.storage import display, join, open_store, to_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSettings:
    """What a resume changes.

    Attributes:
        report: where to write the report, besides the run directory.
        debug: after a failure, show the log of the process that caused it.
        ps: number of parameter servers; 0: as before.
        epochs: number of epochs in total, more than before; 0: as before.
        output: folder for the exported model; empty: as before.
        accept: see ``RunOptions``.
    """

    report: Path | None = None
    debug: bool = False
    ps: int = 0
    epochs: int = 0
    output: str = ""
    accept: Accept | None = None


def resume(job: str, root: Path, settings: ResumeSettings) -> int:
    """Run the command.

    Args:
        job: id or name.
        root: folder of the run directories.
        settings: what changes.

    Returns:
        Its exit code.

    Raises:
        UserError: the job is running, has nothing left to train, or its model file, data or working directory changed.
    """
    started_s = time.time()
    check_extras()
    report = settings.report.expanduser().absolute() if settings.report else None
    if report:
        check_report(report)
    output = to_uri(settings.output) if settings.output else ""
    run = run_directory.find(root, job)
    record = run.read()
    working_directory.enter(record)
    if output:
        check_apart(f"--output={settings.output}", join(output, "file"), data_paths(record))
    if report:
        check_apart(f"--report={settings.report}", to_uri(report), data_paths(record))
    check_model_files(run, record)
    with run.lock():
        past = asyncio.run(_past(run, record, replace(settings, output=output)))
        if past.spec.output:
            check_writable(f"the output {display(past.spec.output)}", past.spec.output)
        run.create()
        console = JobConsole()
        check_data(run, past.spec, console.print_line)
        record = replace(record, launcher_pid=os.getpid(), state=JobState.STARTING.value, message="", next_step="")
        if settings.epochs or output:
            record = replace(record, epochs=settings.epochs or record.epochs, output=display(past.spec.output))
        run.write(record)
        console.print_line(_start_line(run, past))
        options = RunOptions(started_s=started_s, report=report, debug=settings.debug, accept=settings.accept)
        return run_job(run, record, past.spec, past.opening, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What is left of a job.

    Attributes:
        spec: the job as it continues.
        state: as its log describes it; empty if the log is lost.
        opening: the first events of the next run.
    """

    spec: JobSpec
    state: State
    opening: tuple[Event, ...]


async def _past(run: RunDirectory, record: JobRecord, settings: ResumeSettings) -> _Past:
    """Read the log, and make sure that the key-value registers of the ps name existing snapshots."""
    store = open_store(record.storage)
    async with open_bus(run, held=True) as bus:
        try:
            state = (await recover(bus)).state
            left = await record_at(bus.log, await bus.log.last_seq())
        except (PermanentError, ProtocolError) as error:
            raise UserError(
                f"the event log of job {run.job} can't be read: {error}",
                hint=f"The job can be resumed from its snapshots without the log: {_without_log(run, record)}",
            ) from error
        recovered = None
        spec = state.spec
        if spec is None:
            recovered = await recover_without_log(run, store, record.storage)
            spec = recovered.spec
        lost = lost_part(left, run.read_log_end())
        if lost:
            lost = replace(lost, history=lost_history(state, run.read_history()))
        # A log that is lost, or lacks its end, may lack the resume that added epochs.
        former_epochs = record.epochs if lost or state.spec is None else 0
        if settings.epochs:
            _check_epochs(run, spec, max(spec.plan.epochs, former_epochs), settings.epochs)
        elif state.job_state is JobState.SUCCEEDED:
            raise UserError(
                f"job {run.job} has finished successfully, so there is nothing to resume",
                hint=f"To train more epochs: elasticdl resume {run.arguments} --num_epochs=N, where N is their total "
                f"number. To export the model: elasticdl export {run.arguments}",
            )
        resumed = JobResumed(
            reason=f"resumed after {state.job_state.value}" if state.spec else "resumed without its log",
            lost=lost,
            ps=settings.ps,
            epochs=settings.epochs or former_epochs,
            output=settings.output,
        )
        resumed = await resume_event(bus.registers, store, spec, recovered, resumed, time.time())
    opening = (resumed,) if state.spec else (JobSubmitted(spec=spec), resumed)
    if resumed.epochs:
        spec = spec.with_epochs(resumed.epochs)
    return _Past(spec=replace(spec, output=settings.output or spec.output), state=state, opening=opening)


def _check_epochs(run: RunDirectory, spec: JobSpec, planned: int, epochs: int) -> None:
    """Refuse a number of epochs with which the job can't continue; so many are ``planned``."""
    plan = spec.plan
    if epochs <= planned:
        raise UserError(
            f"job {run.job} has {count(planned, 'epoch')}, so --num_epochs={epochs} adds none",
            hint=f"--num_epochs is the total number of epochs: give at least {planned + 1}.",
            usage=True,
        )
    if plan.max_step and plan.max_step < plan.batches_per_epoch * epochs:
        raise UserError(
            f"job {run.job} ends at --max_step={plan.max_step}, so its number of epochs can't be changed",
            hint="Start a new job with: elasticdl train",
        )
    if spec.checksum and not spec.epoch_checksum:
        raise UserError(
            f"job {run.job} was planned by an earlier version of ElasticDL, so its number of epochs can't be changed",
            hint="Start a new job with: elasticdl train",
        )


def _without_log(run: RunDirectory, record: JobRecord) -> str:
    streams = f"the folder {run.nats}" if record.own_nats else f"the streams EDL-{run.job}-* of the NATS server"
    return f"delete {streams}, then resume again."


def _start_line(run: RunDirectory, past: _Past) -> str:
    if past.state.spec is None:
        return f"Resuming job {run.job} from its snapshots, because its event log is lost. Logs: {run.logs}"
    finished = len(past.state.training.complete) if past.state.training else 0
    tasks = count(past.spec.plan.tasks, "task")
    return f"Resuming job {run.job}: {finished:,} of {tasks} finished. Logs: {run.logs}"
