"""Access to the event log of a job, whether it is running or not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator

from elasticdl.cli.jobs.run_directory import DISK_BYTES_MIN, READ_BYTES_MIN, RunDirectory
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.bus import Bus, BusSettings, nats_bus
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import UserError
from elasticdl.shared.process.operating_system import die_with_parent

TURN_S_MAX = 30.0
"""Seconds to wait for other commands that read the same ended job."""
_POLL_S = 0.1


@contextlib.asynccontextmanager
async def open_bus(run: RunDirectory, *, held: bool = False, read_interval_s: float = 0.0) -> AsyncIterator[Bus]:
    """Connect to the NATS server of a job; if its launcher is not running, start the server on the job's files.

    Args:
        held: whether the caller holds the folder's lock, so that no launcher is running.
        read_interval_s: see ``BusSettings``.
    """
    record = run.read()
    settings = BusSettings(
        run_directory=str(run.path), read_interval_s=read_interval_s, absence_is_final=not record.own_nats
    )
    if not record.nats_url and not held and run.is_launched(record):
        raise UserError(
            f"job {run.job} has no event log yet: its launcher still checks the data and the model",
            hint="Try again in some seconds.",
        )
    if not record.own_nats or (not held and run.is_launched(record)):
        async with await nats_bus.connect(record.nats_url, run.job, settings) as bus:
            yield bus
        return
    problem = run.disk_problem(DISK_BYTES_MIN if held else READ_BYTES_MIN)
    if problem:
        raise UserError(problem, hint="Free some space there, then try again.")
    with contextlib.ExitStack() as stack:
        if not held:
            await take_turn(run, stack)
        server = NatsServer(run.nats, token=secrets.token_hex(16), before_exec=die_with_parent())
        url = await asyncio.to_thread(Spawner().call, server.start)
        try:
            async with await nats_bus.connect(url, run.job, settings) as bus:
                yield bus
        finally:
            await asyncio.to_thread(server.stop)


async def take_turn(run: RunDirectory, stack: contextlib.ExitStack) -> None:
    """Lock the folder of an ended job: one command after the other starts a server on its files.

    Raises:
        UserError: its launcher has started again, another command reads for too long, or the job was deleted.
    """
    give_up_s = time.monotonic() + TURN_S_MAX
    while True:
        try:
            stack.enter_context(run.lock())
        except UserError:
            if run.holder() == run.read().launcher_pid or time.monotonic() >= give_up_s:
                raise
            await asyncio.sleep(_POLL_S)
            if not run.is_there():  # To lock it would create its file again, while its folder is being removed.
                raise run.unknown() from None
        else:
            return
