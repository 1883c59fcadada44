"""``jobs``, ``stop``, ``scale`` and ``clean``: the jobs whose folders are on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from rich.table import Table

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.resumability import next_step_of
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import INTERRUPTED, JobRecord, RunDirectory
from elasticdl.cli.jobs.temporary import remove_temporary
from elasticdl.cli.local.event_publisher import QueuedEventPublisher
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import SystemClock

STOP_S_MAX = 90.0
"""Seconds to wait for a job to stop; its launcher kills what is left after 45."""
_POLL_S = 0.1
_DAY_S = 86_400.0
_FINAL = (JobState.SUCCEEDED.value, JobState.FAILED.value, JobState.STOPPED.value)


def list_jobs(root: Path) -> None:
    """Print one line per job, oldest first."""
    console = plain_console()
    found = run_directory.run_directories(root)
    if not found:
        console.print(f"no jobs in {root}")
        return
    table = Table()
    for column in ("job", "state", "submitted", "model", "training data"):
        table.add_column(column, overflow="fold", no_wrap=column == "job")  # an id is there to be copied
    interrupted, damages = [], []
    for run in found:
        try:
            record = run.read()
        except UserError as error:
            table.add_row(run.job, "damaged", "", "", "")
            damages.append(error)
            continue
        state = shown_state(run, record)
        interrupted += [run] if state == INTERRUPTED else []
        submitted = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created_s))
        model = Path(record.model.rpartition(":")[0]).name
        table.add_row(run.job, state, submitted, model, record.training_data)
    console.print(table)
    for damage in damages:
        console.print(str(damage))
    for run in interrupted:
        console.print(f"{run.job}: no process of it runs any more. {next_step_of(run)}")


def shown_state(run: RunDirectory, record: JobRecord) -> str:
    """A job's state; ``interrupted`` when its launcher is gone without a last word."""
    if record.state not in _FINAL and not run.is_locked():
        return INTERRUPTED
    return record.state


def stop(job: str, root: Path) -> None:
    """Have a running job stop, and wait for that.

    Raises:
        UserError: it is not running, or does not stop.
    """
    run = run_directory.find(root, job)
    record = run.read()
    if not run.is_locked():
        raise UserError(
            f"job {run.job} is not running ({shown_state(run, record)})",
            hint=f"See: elasticdl status {run.arguments}",
        )
    try:
        asyncio.run(_request(run, StopRequested(reason="elasticdl stop")))
    except ElasticDLError:
        # Its broker does not answer: the launcher itself can be told, too.
        if run.holder() != record.launcher_pid:
            raise UserError(
                f"job {run.job} is held by process {run.holder()}, which is about to resume it or looks into its log",
                hint="Try again in a moment.",
            ) from None
        os.kill(record.launcher_pid, signal.SIGTERM)
    ends_s = time.monotonic() + STOP_S_MAX
    while run.is_locked():
        if time.monotonic() > ends_s:
            raise UserError(f"job {run.job} does not stop", hint=f"Kill its launcher: kill -9 {record.launcher_pid}")
        time.sleep(_POLL_S)
    record = run.read()
    console = plain_console()
    console.print(f"{run.job}: {record.state}")
    for line in filter(None, (record.message if record.state == JobState.FAILED.value else "", record.advice)):
        console.print(line)


def scale(job: str, root: Path, *, workers: int, ps: int) -> None:
    """Have a running job use another number of workers or ps from now on; 0: as many as before.

    Raises:
        UserError: it is not running, its broker does not answer, or neither number was given.
    """
    if not workers and not ps:
        raise UserError("say how many: --workers, --ps or both", usage=True)
    run = run_directory.find(root, job)
    if not run.is_locked():
        record = run.read()
        state = shown_state(run, record)
        hint = f"See: elasticdl status {run.arguments}" if state == INTERRUPTED else record.advice
        raise UserError(f"job {run.job} is not running ({state}), so there is nothing to scale", hint=hint)
    asyncio.run(_request(run, ScaleRequested(workers=workers, ps=ps)))
    wanted = [f"{count} {what}" for count, what in ((workers, "workers"), (ps, "ps")) if count]
    plain_console().print(f"{run.job}: {' and '.join(wanted)} from now on")


def clean(root: Path, jobs: list[str], *, older_than_days: float, unfinished: bool, dry_run: bool) -> None:
    """Remove the folders of jobs that are over.

    Args:
        root: where the folders are.
        jobs: ids or names; empty: all that are old enough.
        older_than_days: how long ago a job that was not named must have ended.
        unfinished: jobs that could be resumed, too.
        dry_run: only tell.

    Raises:
        UserError: a job was named that is running, or could be resumed and ``unfinished`` is not set.
    """
    console = plain_console()
    chosen = [run_directory.find(root, job) for job in jobs] or _old(root, older_than_days, unfinished)
    for run in chosen:
        record = run.read()
        if jobs and record.state != JobState.SUCCEEDED.value and not unfinished and not run.is_locked():
            raise UserError(
                f"job {run.job} ({shown_state(run, record)}) could still be resumed",
                hint="Add --all to remove it all the same.",
            )
        if dry_run:
            console.print(f"would remove {run.path} ({shown_state(run, record)})")
            continue
        with run.lock():
            remove_temporary(run.job, record.temporary)
            run.remove()
        console.print(f"removed {run.path}")
    if not chosen:
        console.print("nothing to remove")


def _old(root: Path, older_than_days: float, unfinished: bool) -> list[RunDirectory]:
    before_s = time.time() - older_than_days * _DAY_S
    return [
        run
        for run in run_directory.run_directories(root)
        if not run.is_locked()
        and (run.path / "job.json").stat().st_mtime <= before_s
        and (unfinished or run.read().state == JobState.SUCCEEDED.value)
    ]


async def _request(run: RunDirectory, event: StopRequested | ScaleRequested) -> None:
    """Put a request on a running job's log."""
    async with open_bus(run) as bus:
        publisher = QueuedEventPublisher(bus.log, SystemClock(), Service.CLIENT, PodName(f"client-{os.getpid()}"))
        writing = asyncio.create_task(publisher.run())
        publisher.note(event)
        await asyncio.wait({asyncio.create_task(publisher.flush()), writing}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
