from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.shared.bus import Bus, BusSettings
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.nats_bus import connect
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.names import JobId, new_job_id

LEASE_S = 1.0
SETTINGS = BusSettings(lease_s=LEASE_S, heartbeat_s=0.5, answer_s=1.0, retry_s=30.0, retry_pause_s=0.05)

Connect = Callable[[], Awaitable[Bus]]


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all tests; each test has a job, so streams, of its own."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that a test may kill."""
    server = NatsServer(tmp_path / "nats")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def job() -> JobId:
    return new_job_id("contract")


@pytest.fixture(params=["memory", "nats"])
async def connect_bus(request: pytest.FixtureRequest, job: JobId) -> AsyncIterator[Connect]:
    """Makes another client of the same broker and job."""
    opened: list[Bus] = []
    broker = MemoryBroker(SETTINGS)

    async def connect_memory() -> Bus:
        opened.append(broker.connect())
        return opened[-1]

    async def connect_nats() -> Bus:
        opened.append(await connect(request.getfixturevalue("nats_url"), job, SETTINGS))
        return opened[-1]

    yield connect_memory if request.param == "memory" else connect_nats
    for bus in opened:
        await bus.close()


@pytest.fixture
async def bus(connect_bus: Connect) -> Bus:
    return await connect_bus()
