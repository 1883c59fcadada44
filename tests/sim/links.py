"""Executes the steps of the shipped ps client on the virtual clock, over simulated connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.sim.wire import CONNECT_S, Connection

from elasticdl.shared.names import PodName
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import PullReply
from elasticdl.worker.ps_client import PsAddress, PsCalls, PsClientSettings, PsDirectory
from elasticdl.worker.ps_client.calls import Settled
from elasticdl.worker.ps_client.connection import Close, Connect, Pause, Receive, Send, Step

if TYPE_CHECKING:
    from tests.sim.worker import WorkerProcess

R = TypeVar("R")


def ps_calls(worker: WorkerProcess) -> PsCalls:
    """The shipped client of a simulated worker."""
    job = worker.world.job
    return PsCalls(
        PsDirectory(placement=lambda: worker.placement, resolve=lambda: _addresses(worker)),
        plan=job.plan.fingerprint,
        signature=job.signature,
        clock=worker.clock,
        settings=PsClientSettings(has_gate=job.spec.bounds_staleness),
    )


def pull_replies(settled: Settled) -> Mapping[PodName, PullReply]:
    """The answers to a pull by ps."""
    return settled.by_ps(settled.replies)


async def drive(worker: WorkerProcess, procedure: Procedure[R]) -> R:
    """Run a procedure of the client to its end."""
    try:
        step = next(procedure)
        while True:
            try:
                result = await _execute(worker, step)
            except Exception as error:  # The procedure decides about its steps' errors.
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as stop:
        return cast("R", stop.value)


async def _execute(worker: WorkerProcess, step: Step) -> Any:
    match step:
        case Send(wire=Connection() as connection, request=request):
            return connection.send(request)
        case Receive(handle=handle):
            return await handle
        case Connect(ps=ps, address=registered):
            return await _connect(worker, ps, registered)
        case Pause(seconds=seconds):
            return await asyncio.sleep(seconds)
        case Close(wire=Connection() as connection):
            return connection.reset(still_arrives=True)
        case _:
            raise TypeError(f"the simulator can't execute {step}")


async def _connect(worker: WorkerProcess, ps: PodName, registered: PsAddress) -> Connection:
    world = worker.world
    server = world.ps_at(registered.address)
    await asyncio.sleep(2 * world.network.latency_s())
    if server is None or not server.instance.alive or not server.listening:
        raise ConnectionLostError("connection refused")
    if server.instance.frozen or not world.network.reaches(worker.name, ps):
        await asyncio.sleep(CONNECT_S)
        raise ConnectionLostError("no answer")
    connection = Connection(worker, server)
    server.connections.append(connection)
    return connection


def _addresses(worker: WorkerProcess) -> Mapping[PodName, PsAddress]:
    return {
        ps: PsAddress(address=register.address, incarnation=register.incarnation)
        for ps, register in worker.places.items()
        if register.address
    }
