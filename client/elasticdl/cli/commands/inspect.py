"""``status``, ``tasks``, ``task``, ``events`` and ``replay``: the log of a live or finished job, for people.

They fold the log with the master's own core, so they can't tell anything else than the master would.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticdl.cli.commands.jobs import shown_state
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.next_steps import resume_line
from elasticdl.cli.display.records import clock, one_line, story
from elasticdl.cli.display.resumability import next_step
from elasticdl.cli.display.status import at_rest, print_state, status_facts
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State, evolve, fold
from elasticdl.master.snapshots.recovery import Recovered, recover
from elasticdl.master.verification import Verification, verify
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.bus.reading import present_records, read_present
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.storage import display

GONE_POLL_S = 1.0
"""Seconds between two looks at whether the launcher of a followed job is still there."""


def status(job: str, root: Path, *, as_json: bool) -> None:
    """Print how a job stands."""
    run = run_directory.find(root, job)
    alive = run.is_locked()
    state = _recovered(run).state
    console = plain_console()
    if as_json:
        console.print(json.dumps(status_facts(run, state, alive=alive), indent=2))
        return
    if state.spec is None:
        told = shown_state(run, run.read())
        console.print(f"{run.job}: {told}; its event log holds no job" + (" yet" if alive else ""))
        if not alive and told != JobState.SUCCEEDED.value:
            console.print(next_step(run, state))
        return
    if not alive and not state.is_final:
        console.print(f"{run.job} was interrupted: no process of it runs any more. {next_step(run, state)}")
    if not alive:
        state = at_rest(state)
    print_state(state, console, time.time() if alive else state.now_s)


def tasks(job: str, root: Path, limit: int) -> None:
    """Print the training tasks that are not finished, or where all are, the last ones."""
    run = run_directory.find(root, job)
    alive = run.is_locked()
    state = _recovered(run).state
    state = state if alive else at_rest(state)
    if state.spec is None or state.training is None:
        raise UserError(f"the log of {run.job} holds no job yet")
    finished, plan = len(state.training.complete), state.plan
    console = plain_console()
    console.print(
        f"{finished:,} of {plan.tasks:,} training tasks are finished, {len(state.training.outstanding):,} dispatched, "
        f"{len(state.running_attempts):,} in somebody's hands, {len(state.training.lacking):,} to be dispatched again"
    )
    table = Table()
    for column in ("task", "epoch", "source", "records", "batches", "state"):
        table.add_column(column, overflow="fold")
    rows = _task_rows(state, limit)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if len(rows) == limit:
        console.print(f"The first {limit}; more with --limit.")


def task(job: str, root: Path, number: int, purpose: str) -> None:
    """Print the story of one task.

    Raises:
        UserError: there is no such task.
    """
    run = run_directory.find(root, job)
    records = _records(run)
    try:
        ref = TaskRef(purpose=Purpose(purpose), number=number)
    except ValueError as error:
        names = ", ".join(each.value for each in Purpose)
        raise UserError(f"--purpose={purpose} is none of {names}", usage=True) from error
    state = fold(records)
    console = plain_console()
    if ref.purpose is Purpose.TRAIN and state.spec is not None:
        if number >= state.plan.tasks:
            raise UserError(f"there is no task {number}", hint=f"{run.job} has tasks 0 to {state.plan.tasks - 1}.")
        _print_shard(state, TaskId(number), console)
    lines = list(story(records, ref))
    for line in lines or ["nothing has happened to it yet"]:
        console.print(line)


def events(job: str, root: Path, *, follow: bool) -> None:
    """Print the log, one line per record."""
    run = run_directory.find(root, job)
    console = plain_console()
    if not follow:
        _print_records(_records(run), console)
        return
    asyncio.run(_follow(run, console))


def replay(job: str, root: Path, until: int, *, check: bool) -> bool:
    """Print what the master knew after a record.

    Args:
        job: id or name.
        root: the run directories' root.
        until: sequence number of the last record to fold; 0: all.
        check: fold from the beginning, and decide again whatever was decided.

    Returns:
        Whether every decision would be the same today; True if ``check`` is not set.

    Raises:
        UserError: the log is shorter.
    """
    run = run_directory.find(root, job)
    console = plain_console()
    verified: Verification | None = None
    if check:
        verified = _verified(run, until)
        state, last = verified.state, verified.last_seq
    else:
        recovered = _recovered(run, until)
        state, last = recovered.state, recovered.read_seq
    if until and last < until:
        raise UserError(f"the log of {run.job} ends at #{last}")
    console.print(f"after #{last}, {clock(state.now_s)}, term {state.term}:")
    print_state(state, console, state.now_s)
    for seq, decided in state.pending_commands:
        console.print(f"decision #{seq} has no recorded outcome ({len(decided.commands)} commands)")
    if verified is None:
        return True
    for difference in verified.differences:
        console.print(difference)
    console.print(f"{verified.decisions:,} decisions decided again, {len(verified.differences):,} of them otherwise")
    return not verified.differences


def _records(run: RunDirectory) -> list[LogRecord]:
    async def read() -> list[LogRecord]:
        async with open_bus(run) as bus:
            return await read_present(bus.log)

    return asyncio.run(read())


def _recovered(run: RunDirectory, until: int = 0) -> Recovered:
    async def read() -> Recovered:
        async with open_bus(run) as bus:
            return await recover(bus, until)

    return asyncio.run(read())


def _verified(run: RunDirectory, until: int) -> Verification:
    async def read() -> Verification:
        async with open_bus(run) as bus:
            return await verify(present_records(bus.log, until=until))

    return asyncio.run(read())


async def _follow(run: RunDirectory, console: Console) -> None:
    alive = run.is_locked()  # Before this command holds the folder itself.
    async with open_bus(run) as bus:
        printing = asyncio.create_task(_print_to_the_end(bus.log, console, alive))
        watching = asyncio.create_task(_wait_until_nobody_keeps(run))
        await asyncio.wait((printing, watching), return_when=asyncio.FIRST_COMPLETED)
        printing.cancel()
        watching.cancel()
        await asyncio.gather(printing, watching, return_exceptions=True)
    if printing.cancelled():
        console.print(f"{run.job}: no process of it runs any more; go on with: {resume_line(run)}")
    else:
        printing.result()


async def _print_to_the_end(log: EventLog, console: Console, alive: bool) -> None:
    """Print until the job is final, or to the present end where nobody will add to the log."""
    state = State()
    last = await log.last_seq()
    async for record in log.read(0):
        evolve(state, record)
        console.print(one_line(record))
        if record.seq >= last and (state.is_final or not alive):
            return


async def _wait_until_nobody_keeps(run: RunDirectory) -> None:
    """Until its launcher is gone; the broker goes with it."""
    while run.is_locked():
        await asyncio.sleep(GONE_POLL_S)


def _print_records(records: Iterable[LogRecord], console: Console) -> None:
    for record in records:
        console.print(one_line(record))


def _print_shard(state: State, number: TaskId, console: Console) -> None:
    plan = state.plan
    shard = plan.shard(number)
    source = display(plan.sources[shard.source].uri)
    console.print(
        f"task {number}: epoch {plan.epoch(number) + 1} of {plan.epochs}, records {shard.start} to {shard.end - 1} of "
        f"{source}, {plan.batches_of(number)} batches"
    )


def _task_rows(state: State, limit: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    plan = state.plan
    for number in _interesting(state):
        if len(rows) == limit:
            break
        shard = plan.shard(number)
        source = display(plan.sources[shard.source].uri).rpartition("/")[2]
        records = f"{shard.start}-{shard.end - 1}"
        epoch = str(plan.epoch(number) + 1)
        rows.append((str(number), epoch, source, records, str(plan.batches_of(number)), _task_state(state, number)))
    return rows


def _interesting(state: State) -> Iterator[TaskId]:
    """Unfinished tasks in planning order; of a finished job all tasks."""
    training = state.training
    if training is None:
        return
    if training.is_complete:
        yield from state.plan.task_ids()
        return
    for start, end in training.complete.gaps(0, state.plan.tasks):
        yield from (TaskId(number) for number in range(start, end))


def _task_state(state: State, number: TaskId) -> str:
    ref = TaskRef(purpose=Purpose.TRAIN, number=number)
    training = state.training
    failures = len(state.failures.get(ref, ()))
    failed = f", failed {failures} times" if failures else ""
    holders = state.running_attempts.get(ref)
    if holders:
        return "with " + ", ".join(holding.worker for holding in holders.values()) + failed
    if training is not None and number in training.complete:
        return "finished"
    if training is None or number >= training.frontier:
        return "planned"
    return ("to be dispatched again" if number in training.lacking else "dispatched") + failed
