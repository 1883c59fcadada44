"""What can become of a job that nobody keeps: ``jobs`` and ``status`` say it, and ``resume`` does it."""

from __future__ import annotations

import asyncio

from elasticdl.cli.display.next_steps import advice
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.recovery.snapshot_recovery import has_snapshots
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage import open_store


def next_step(run: RunDirectory, state: State) -> str:
    """What to do next, in one line. Where the log is lost, the snapshots are looked through, as a resume does.

    Args:
        run: the job's folder.
        state: the job as its log tells it.

    Raises:
        TransientError, PermanentError: the storage does not answer.
        UserError: job.json is damaged.
    """
    if state.spec is not None:
        return advice(run, state)
    storage = run.read().storage
    return advice(run, state, salvageable=has_snapshots(open_store(storage), storage, run.job))


def next_step_of(run: RunDirectory) -> str:
    """``next_step`` of a job whose launcher is gone; where that can't be found out now, who says why."""

    async def read() -> State:
        async with open_bus(run) as bus:
            return (await recover(bus)).state

    try:
        return next_step(run, asyncio.run(read()))
    except ElasticDLError:
        return f"See: elasticdl status {run.arguments}"
