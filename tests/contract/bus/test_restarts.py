"""What both brokers keep and forget when they restart, and what their clients notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from tests.contract.bus.conftest import SETTINGS
from tests.contract.bus.values import fact, task

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.nats_bus import connect
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.names import JobId, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Restartable:
    """A client of a broker that a test may stop and start."""

    bus: Bus
    stop: Callable[[], None]
    start: Callable[[], object]


@pytest.fixture(params=["memory", "nats"])
async def broker(request: pytest.FixtureRequest, job: JobId) -> AsyncIterator[Restartable]:
    if request.param == "memory":
        memory = MemoryBroker(SETTINGS)
        found = Restartable(bus=memory.connect(), stop=memory.stop, start=memory.start)
    else:
        server: NatsServer = request.getfixturevalue("own_server")
        bus = await connect(server.start(), job, SETTINGS)
        found = Restartable(bus=bus, stop=server.stop, start=server.start)
    yield found
    await found.bus.close()


async def test_a_write_waits_until_the_broker_is_back(broker: Restartable) -> None:
    await broker.bus.log.append(fact(1))
    broker.stop()
    writing = asyncio.create_task(broker.bus.log.append(fact(2)))
    done, _ = await asyncio.wait([writing], timeout=0.2)
    assert not done
    broker.start()
    assert await writing == 2


async def test_the_log_recognises_repetitions_across_a_restart(broker: Restartable) -> None:
    assert await broker.bus.log.append(fact(1)) == 1
    broker.stop()
    broker.start()
    assert await broker.bus.log.append(fact(1)) == 1
    assert await broker.bus.log.last_seq() == 1


async def test_a_reader_continues_after_a_restart(broker: Restartable) -> None:
    await broker.bus.log.append(fact(1))
    reader = aiter(broker.bus.log.read(0))
    assert (await anext(reader)).seq == 1
    broker.stop()
    broker.start()
    await broker.bus.log.append(fact(2))
    assert (await anext(reader)).envelope == fact(2)


async def test_the_queue_forgets_the_ids_of_acknowledged_tasks(broker: Restartable) -> None:
    await broker.bus.tasks.publish([(task(0), False), (task(1), False)])
    delivery = await broker.bus.tasks.take([Purpose.TRAIN])
    assert delivery is not None
    await delivery.ack()
    broker.stop()
    broker.start()
    await broker.bus.tasks.publish([(task(0), False), (task(1), False)])
    async with asyncio.timeout(20):
        taken: list[int] = []
        while len(taken) < 2:
            fresh = await broker.bus.tasks.take([Purpose.TRAIN])
            if fresh is None:
                await broker.bus.tasks.wait(0.1)
            else:
                taken.append(fresh.task.task.number)
                await fresh.ack()
    assert sorted(taken) == [0, 1]
