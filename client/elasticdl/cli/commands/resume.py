"""``elasticdl resume``: go on with a job from its last snapshots."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.next_steps import UNBEGUN
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.running import run_job
from elasticdl.cli.recovery.snapshot_recovery import lost_part, restore_registers, salvage, settle_placement
from elasticdl.cli.submission.model_digest import changed_files, file_digests
from elasticdl.cli.submission.preflight import check_report
from elasticdl.cli.submission.source_check import check_data, mend_indices
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
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
        root: where the run directories are.
        report: where to write the report besides the run directory.
        ps: how many parameter servers; 0: as many as before.
        debug: show the guilty process' log on failure.

    Returns:
        Its exit code.

    Raises:
        UserError: the job is running, is finished, or its model file was changed.
    """
    started_s = time.time()
    if report:
        check_report(report)
    run = run_directory.find(root, job)
    record = run.read()
    _check_model(run, record)
    with run.lock():
        past = asyncio.run(_past(run, record, ps))
        if past.state.job_state is JobState.SUCCEEDED:
            raise UserError(f"job {run.job} is finished: there is nothing to go on with")
        check_data(run, past.spec)
        run.create()
        console = JobConsole()
        mend_indices(run, past.spec, lambda line: console.print(line, markup=False, soft_wrap=True))
        record = replace(record, launcher_pid=os.getpid(), state=JobState.STARTING.value, message="", advice="")
        run.write(record)
        _say_where_it_goes_on(run, past, console)
        return run_job(run, record, past.spec, *past.opening, started_s=started_s, report=report, debug=debug)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What is left of a job.

    Attributes:
        spec: the job.
        state: what its log tells; empty if that is lost.
        opening: what the log has to be continued with.
    """

    spec: JobSpec
    state: State
    opening: tuple[Event, ...]


async def _past(run: RunDirectory, record: JobRecord, ps: int) -> _Past:
    """Read the log, and have the registers name snapshots, which are what counts."""
    store = open_store(record.storage)
    async with open_bus(run, held=True) as bus:
        try:
            state = (await recover(bus)).state
            left = await record_at(bus.log, await bus.log.last_seq())
        except (PermanentError, ProtocolError) as error:
            raise UserError(
                f"the event log of job {run.job} can't be read: {error}",
                hint=f"Without it the job goes on from its snapshots: {_how_to_do_without(run, record)}",
            ) from error
        salvaged = None
        spec = state.spec
        if spec is None:
            salvaged = await asyncio.to_thread(salvage, store, record.storage, run.job)
            if salvaged is None:
                raise UserError(
                    f"there is nothing to go on with: neither the event log of job {run.job} nor a snapshot in "
                    f"{display(record.storage)}",
                    hint=UNBEGUN,
                )
            spec = salvaged.spec
        lost = lost_part(left, run.read_log_end())
        placement = await settle_placement(bus.registers, store, spec, salvaged, lost, time.time())
        if placement is None:
            await restore_registers(bus.registers, store, spec, salvaged)
    resumed = JobResumed(
        reason=f"resumed after {state.job_state.value}" if state.spec else "resumed without its log",
        lost=lost,
        ps=ps or (len(placement.holders) if placement else 0),
        placement=placement.version if placement else 0,
        owners=placement.owners if placement else (),
    )
    return _Past(spec=spec, state=state, opening=(resumed,) if state.spec else (JobSubmitted(spec=spec), resumed))


def _how_to_do_without(run: RunDirectory, record: JobRecord) -> str:
    return f"delete {run.nats}, then resume again." if record.own_nats else f"delete its streams EDL-{run.job}-*."


def _say_where_it_goes_on(run: RunDirectory, past: _Past, console: Console) -> None:
    if past.state.spec is None:
        line = f"job {run.job} goes on from its snapshots, because its event log is lost; logs in {run.logs}"
        console.print(line, markup=False, soft_wrap=True)
        return
    done = len(past.state.training.complete) if past.state.training else 0
    console.print(
        f"job {run.job} goes on: {done:,} of {past.spec.plan.tasks:,} tasks were finished; logs in {run.logs}",
        markup=False,
        soft_wrap=True,
    )


def _check_model(run: RunDirectory, record: JobRecord) -> None:
    """Refuse a model that is not the one that was being trained."""
    path = Path(record.model.rpartition(":")[0])
    if not record.model_files:
        return
    if not path.is_file():
        raise UserError(f"the model file {path} of job {run.job} is gone", hint="Put it back, or train anew.")
    changed = changed_files(record.model_files, file_digests(path))
    if changed:
        names = ", ".join(str(path.parent / name) for name in changed)
        raise UserError(
            f"{names} changed since job {run.job} was planned",
            hint="Undo the change to go on with this job, or train the new model with: elasticdl train",
        )
