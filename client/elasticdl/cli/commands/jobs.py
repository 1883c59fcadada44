"""``elasticdl jobs``, ``stop`` and ``scale``: the jobs on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.next_steps import next_step_of
from elasticdl.cli.display.quantities import count
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.local_handle import shown_state, suspension
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import INTERRUPTED, RunDirectory
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher

STOP_S_MAX = 90.0
"""Seconds to wait for a job to stop. Its launcher kills leftover processes after 45."""
SLOW_S = 3.0
"""Seconds after which the user reads what the command waits for."""
_POLL_S = 0.1


def list_jobs(root: Path) -> None:
    """Print one line per job, oldest first."""
    console = plain_console()
    found = run_directory.run_directories(root)
    if not found:
        console.print(f"No jobs in {root}")
        return
    table = Table()
    for column in ("job", "state", "submitted", "model", "training data"):
        table.add_column(column, overflow="fold", no_wrap=column == "job")  # Users copy the id.
    interrupted, errors = [], []
    for run in found:
        try:
            record = run.read()
        except UserError as error:
            table.add_row(run.job, "damaged", "", "", "")
            errors.append(error)
            continue
        state = shown_state(run, record)
        interrupted += [run] if state == INTERRUPTED else []
        submitted = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created_s))
        model = Path(record.model.rpartition(":")[0]).name
        table.add_row(run.job, state, submitted, model, record.training_data)
    console.print(table)
    for damage in errors:
        console.print(str(damage))
    for run in interrupted:
        delete = f"It had not begun to train. To delete it: elasticdl clean {run.arguments}"
        step = next_step_of(run) if run.can_be_resumed() else delete
        console.print(f"{run.job} was interrupted: its launcher is not running. {step}")


def stop(job: str, root: Path) -> None:
    """Stop a running job, and wait until it has stopped.

    Raises:
        UserError: it is not running, or does not stop.
    """
    run = run_directory.find(root, job)
    record = run.read()
    if not run.is_locked():
        raise UserError(
            f"job {run.job} is not running ({shown_state(run, record)})",
            hint=f"For details: elasticdl status {run.arguments}",
        )
    _check_not_suspended(run, "stopped")
    try:
        asyncio.run(_publish(run, StopRequested(reason="elasticdl stop")))
    except ElasticDLError:
        # Its NATS server is unreachable. The launcher also stops the job when it gets SIGTERM.
        if run.holder() != record.launcher_pid:
            raise run.in_use() from None
        os.kill(record.launcher_pid, signal.SIGTERM)
    console = plain_console()
    _wait_until_stopped(run, record.launcher_pid, console)
    record = run.read()
    console.print(f"{run.job}: {record.state}")
    for line in filter(None, (record.message if record.state == JobState.FAILED.value else "", record.next_step)):
        console.print(line)


def _wait_until_stopped(run: RunDirectory, launcher: int, console: Console) -> None:
    started_s, told = time.monotonic(), False
    while run.is_locked():
        _check_not_suspended(run, "stopped")
        waited_s = time.monotonic() - started_s
        if waited_s > STOP_S_MAX:
            raise UserError(
                f"job {run.job} did not stop within {STOP_S_MAX:g} s",
                hint=f"To kill it: kill -9 {launcher}. It can be resumed after that.",
            )
        if waited_s > SLOW_S and not told:
            told = True
            console.print(f"Waiting until the workers and parameter servers of {run.job} have stopped.")
        time.sleep(_POLL_S)


def _check_not_suspended(run: RunDirectory, what: str) -> None:
    """Refuse to ask a launcher for something that it can't do while it is suspended.

    Raises:
        UserError: it is suspended.
    """
    if suspended := suspension(run):
        raise UserError(
            f"job {run.job} can't be {what} while its {suspended.process} is suspended",
            hint=f"To continue it: {suspended.remedy}",
        )


def scale(job: str, root: Path, *, workers: int, ps: int) -> None:
    """Change the number of workers or ps of a running job; 0: unchanged.

    Raises:
        UserError: it is not running, its NATS server is unreachable, or neither number was given.
    """
    if not workers and not ps:
        raise UserError("give --workers, --ps or both", usage=True)
    run = run_directory.find(root, job)
    if not run.is_locked():
        record = run.read()
        state = shown_state(run, record)
        hint = f"For details: elasticdl status {run.arguments}" if state == INTERRUPTED else record.next_step
        raise UserError(f"job {run.job} is not running ({state}), so it can't be scaled", hint=hint)
    _check_not_suspended(run, "scaled")
    asyncio.run(_publish(run, ScaleRequested(workers=workers, ps=ps)))
    targets = [count(number, noun) for number, noun in ((workers, "worker"), (ps, "parameter server")) if number]
    plain_console().print(f"{run.job}: scaling to {' and '.join(targets)}")


async def _publish(run: RunDirectory, event: StopRequested | ScaleRequested) -> None:
    """Put a request on the log of a running job."""
    async with open_bus(run) as bus:
        name = PodName(f"client-{os.getpid()}")
        publisher = QueuedEventPublisher(
            bus.log, EnvelopeFactory(service=Service.CLIENT, name=name, clock=SystemClock())
        )
        running = asyncio.create_task(publisher.run())
        publisher.publish(event)
        await asyncio.wait({asyncio.create_task(publisher.flush()), running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
