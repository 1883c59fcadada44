"""``elasticdl resume``: runs a job again from its latest snapshots."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.next_steps import NOTHING_TO_RESUME
from elasticdl.cli.display.quantities import count
from elasticdl.cli.jobs import run_directory, working_directory
from elasticdl.cli.jobs.open_log import lost_part, open_bus
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import RunOptions, run_job
from elasticdl.cli.submission.extras import check_extras
from elasticdl.cli.submission.preflight import check_report
from elasticdl.cli.submission.source_check import check_contents, check_model_files, check_sources, rebuild_indices
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.ps.snapshots.job_recovery import recover_job, restore_registers, settle_placement
from elasticdl.shared.bus.reading import record_at
from elasticdl.shared.errors import PermanentError, ProtocolError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Event, JobResumed, JobSubmitted
from elasticdl.shared.storage import display, open_store


def resume(job: str, root: Path, report: Path | None, *, ps: int, debug: bool) -> int:
    """Run the command.

    Args:
        job: id or name.
        root: folder of the run directories.
        report: where to write the report, besides the run directory.
        ps: number of parameter servers; 0: as before.
        debug: after a failure, show the log of the process that caused it.

    Returns:
        Its exit code.

    Raises:
        UserError: the job is running or finished, or its model file, data or working directory changed.
    """
    started_s = time.time()
    check_extras()
    if report:
        report = report.expanduser().absolute()
        check_report(report)
    run = run_directory.find(root, job)
    record = run.read()
    working_directory.enter(record)
    check_model_files(run, record)
    with run.lock():
        past = asyncio.run(_past(run, record, ps))
        if past.state.job_state is JobState.SUCCEEDED:
            raise UserError(f"job {run.job} has finished successfully, so there is nothing to resume")
        check_sources(run, past.spec)
        run.create()
        console = JobConsole()
        rebuild_indices(run, past.spec, console.print_line)
        check_contents(run, past.spec, console.print_line)
        record = replace(record, launcher_pid=os.getpid(), state=JobState.STARTING.value, message="", next_step="")
        run.write(record)
        console.print_line(_start_line(run, past))
        options = RunOptions(started_s=started_s, report=report, debug=debug)
        return run_job(run, record, past.spec, past.opening, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What is left of a job.

    Attributes:
        spec: the job.
        state: as its log describes it; empty if the log is lost.
        opening: the first events of the next run.
    """

    spec: JobSpec
    state: State
    opening: tuple[Event, ...]


async def _past(run: RunDirectory, record: JobRecord, ps: int) -> _Past:
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
            recovered = await asyncio.to_thread(recover_job, store, record.storage, run.job)
            if recovered is None:
                raise UserError(
                    f"job {run.job} has no event log, and no snapshot in {display(record.storage)}",
                    hint=NOTHING_TO_RESUME,
                )
            spec = recovered.spec
        lost = lost_part(left, run.read_log_end())
        placement = await settle_placement(bus.registers, store, spec, recovered, lost, time.time())
        if placement is None:
            await restore_registers(bus.registers, store, spec, recovered)
    resumed = JobResumed(
        reason=f"resumed after {state.job_state.value}" if state.spec else "resumed without its log",
        lost=lost,
        ps=ps or (len(placement.holders) if placement else 0),
        placement=placement.version if placement else 0,
        owners=placement.owners if placement else (),
    )
    return _Past(spec=spec, state=state, opening=(resumed,) if state.spec else (JobSubmitted(spec=spec), resumed))


def _without_log(run: RunDirectory, record: JobRecord) -> str:
    streams = f"the folder {run.nats}" if record.own_nats else f"the streams EDL-{run.job}-* of the NATS server"
    return f"delete {streams}, then resume again."


def _start_line(run: RunDirectory, past: _Past) -> str:
    if past.state.spec is None:
        return f"Resuming job {run.job} from its snapshots, because its event log is lost. Logs: {run.logs}"
    finished = len(past.state.training.complete) if past.state.training else 0
    tasks = count(past.spec.plan.tasks, "task")
    return f"Resuming job {run.job}: {finished:,} of {tasks} finished. Logs: {run.logs}"
