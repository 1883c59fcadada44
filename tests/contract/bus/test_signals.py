from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.terms import LaterTermError
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import Command, TakeSnapshot
from elasticdl.shared.names import Incarnation, PodName, Service

Connect = Callable[[], Awaitable[Bus]]

PS = PodName("ps-0")
SNAPSHOT = TakeSnapshot(ps=PS, request=3, reason="the job is over")
HEARTBEAT = Heartbeat(service=Service.PS, name=PS, incarnation=Incarnation("i"), time_s=1.0, metrics={"rows": 3.0})


async def test_heartbeats_reach_everybody_who_listens(connect_bus: Connect) -> None:
    sender, listeners = await connect_bus(), [await connect_bus(), await connect_bus()]

    async def hear(bus: Bus) -> Heartbeat:
        return await anext(aiter(bus.signals.heartbeats()))

    hearing = [asyncio.create_task(hear(each)) for each in listeners]
    while not all(each.done() for each in hearing):
        await sender.signals.send_heartbeat(HEARTBEAT)
        await asyncio.wait(hearing, timeout=0.01)
    assert [await each for each in hearing] == [HEARTBEAT, HEARTBEAT]


async def test_listening_ends_when_the_client_hangs_up(connect_bus: Connect) -> None:
    bus = await connect_bus()
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in bus.signals.heartbeats():
            heard.set()

    listening = asyncio.create_task(listen())
    while not heard.is_set():
        await bus.signals.send_heartbeat(HEARTBEAT)
        await asyncio.wait([listening], timeout=0.01)
    await bus.close()
    await listening


async def test_an_order_is_carried_out_before_the_answer(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()
    orders: list[tuple[Command, str]] = []

    async def obey(command: Command, cause: str) -> None:
        orders.append((command, cause))

    await ps.signals.serve_orders(PS, obey)
    await master.signals.order(PS, SNAPSHOT, "m.7")
    assert orders == [(SNAPSHOT, "m.7")]


async def test_a_command_to_a_name_without_a_process(bus: Bus) -> None:
    with pytest.raises(TransientError, match="ps-0"):
        await bus.signals.order(PS, SNAPSHOT, "m.7")


async def test_a_refused_order_says_why(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()

    async def refuse(command: Command, cause: str) -> None:
        raise UserError(f"term of {cause} is over")

    await ps.signals.serve_orders(PS, refuse)
    with pytest.raises(PermanentError, match=r"ps-0 refused TakeSnapshot: term of m\.7 is over"):
        await master.signals.order(PS, SNAPSHOT, "m.7")


async def test_orders_of_a_term_before_one_that_was_obeyed_are_refused(connect_bus: Connect) -> None:
    old, new, ps = await connect_bus(), await connect_bus(), await connect_bus()
    obeyed: list[str] = []

    async def obey(command: Command, cause: str) -> None:
        obeyed.append(cause)

    await ps.signals.serve_orders(PS, obey)
    await old.signals.order(PS, SNAPSHOT, "first", term=1)
    await new.signals.order(PS, SNAPSHOT, "second", term=2)
    with pytest.raises(PermanentError, match="of term 1, and term 2 has begun"):
        await old.signals.order(PS, SNAPSHOT, "late", term=1)
    await new.signals.order(PS, SNAPSHOT, "third", term=2)
    assert obeyed == ["first", "second", "third"]


async def test_an_order_that_is_refused_silences_no_master(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()
    obeyed: list[str] = []

    async def obey(command: Command, cause: str) -> None:
        if cause == "stranger":
            raise PermanentError("not for this ps")
        obeyed.append(cause)

    await ps.signals.serve_orders(PS, obey)
    for term in (9, 1 << 63, -1):
        with pytest.raises(PermanentError):
            await master.signals.order(PS, SNAPSHOT, "stranger", term=term)
    await master.signals.order(PS, SNAPSHOT, "master", term=1)
    assert obeyed == ["master"]


async def test_a_master_learns_which_later_term_was_obeyed(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()

    async def obey(command: Command, cause: str) -> None: ...

    await ps.signals.serve_orders(PS, obey)
    await master.signals.order(PS, SNAPSHOT, "later", term=7)
    with pytest.raises(LaterTermError) as refused:
        await master.signals.order(PS, SNAPSHOT, "earlier", term=1)
    assert refused.value.latest == 7


async def test_orders_are_carried_out_one_after_the_other(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()
    under_way: list[int] = []
    together: list[int] = []

    async def obey(command: Command, cause: str) -> None:
        under_way.append(1)
        together.append(len(under_way))
        await asyncio.sleep(0)
        under_way.pop()

    await ps.signals.serve_orders(PS, obey)
    await asyncio.gather(*(master.signals.order(PS, SNAPSHOT, f"m.{number}") for number in range(5)))
    assert together == [1] * 5


async def test_a_process_that_hung_up_takes_no_orders(connect_bus: Connect) -> None:
    master, ps = await connect_bus(), await connect_bus()

    async def obey(command: Command, cause: str) -> None:
        raise AssertionError("no process should serve this")

    await ps.signals.serve_orders(PS, obey)
    await ps.close()
    with pytest.raises(TransientError):
        await master.signals.order(PS, SNAPSHOT, "m.7")


async def test_an_order_reaches_all_processes_of_a_name(connect_bus: Connect) -> None:
    master, old, new = await connect_bus(), await connect_bus(), await connect_bus()
    obeyed: asyncio.Queue[str] = asyncio.Queue()

    def server(name: str) -> Callable[[Command, str], Awaitable[None]]:
        async def obey(command: Command, cause: str) -> None:
            obeyed.put_nowait(name)

        return obey

    await old.signals.serve_orders(PS, server("old"))
    await new.signals.serve_orders(PS, server("new"))
    await master.signals.order(PS, SNAPSHOT, "m.7")
    assert {await obeyed.get(), await obeyed.get()} == {"old", "new"}
