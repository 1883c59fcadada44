"""A long log of the real server is read over a socket of its own, with the same result as message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.contract.bus.conftest import SETTINGS
from tests.contract.bus.values import decision, fact, large_event

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus import NatsBus, connect
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.nats_bus.long_reads import MESSAGES_MIN
from elasticdl.shared.bus.ports import EVENTS_AT_ONCE_MAX
from elasticdl.shared.bus.reading import present_records
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord, MessageUnreadable
from elasticdl.shared.names import LAUNCHER, JobId, Service

EVENTS = MESSAGES_MIN + 500


@asynccontextmanager
async def long_log(url: str, job: JobId, events: int = EVENTS) -> AsyncIterator[NatsBus]:
    async with await connect(url, job, SETTINGS) as bus:
        for first in range(1, events + 1, EVENTS_AT_ONCE_MAX):
            await bus.log.append_all(
                [fact(number) for number in range(first, min(first + EVENTS_AT_ONCE_MAX, events + 1))]
            )
        yield bus


async def one_by_one(bus: NatsBus, count: int) -> list[LogRecord]:
    found = []
    async for record in bus.log.read(0):
        found.append(record)
        if len(found) == count:
            break
    return found


async def many_at_once(bus: NatsBus, count: int) -> list[Envelope]:
    pieces = [some async for some in bus.log.encoded(0, count)]
    assert len(pieces) < count / 10
    return [codec.decode_envelope(data) for some in pieces for data in some]


async def check_equal(bus: NatsBus, count: int) -> list[LogRecord]:
    expected = await one_by_one(bus, count)
    assert [record.seq for record in expected] == list(range(1, count + 1))
    assert await many_at_once(bus, count) == [record.envelope for record in expected]
    assert [record async for record in present_records(bus.log)] == expected
    return expected


async def test_all_kinds_of_events_in_their_order(nats_url: str, job: JobId) -> None:
    async with long_log(nats_url, job) as bus:
        await bus.log.append_fenced(decision(1), after=0)
        await bus.log.append(fact(EVENTS + 1, event=large_event(5000)))
        await bus.log.append(fact(EVENTS + 2))
        await check_equal(bus, EVENTS + 3)


async def test_a_part_of_a_log(nats_url: str, job: JobId) -> None:
    async with long_log(nats_url, job) as bus:
        found = [record.seq async for record in present_records(bus.log, after=100, until=EVENTS - 100)]
        assert found == list(range(101, EVENTS - 99))


async def test_events_that_can_not_be_read(nats_url: str, job: JobId) -> None:
    """Damaged bytes, ids of another program, no headers, no data, the subject of the master, and a long name."""
    stream, launcher = subjects.events_stream(job), subjects.event(job, Service.LAUNCHER, LAUNCHER)
    data = codec.encode_envelope(fact(1))
    async with long_log(nats_url, job) as bus:
        stranger = await Connection.open(nats_url, job, SETTINGS)
        await stranger.store(stream, launcher, b"\xff\xff\xff", {"Nats-Msg-Id": "bbbbbbbbbbbb.900"})
        await stranger.store(stream, launcher, data, {"Nats-Msg-Id": "another"})
        await stranger.store(stream, launcher, data, {})
        await stranger.store(stream, launcher, b"", {"Nats-Msg-Id": "bbbbbbbbbbbb.901"})
        await stranger.store(stream, subjects.decision(job), data, {"Nats-Msg-Id": "bbbbbbbbbbbb.902"})
        await stranger.store(stream, f"{launcher}{'x' * 150}", b"\xff", {"Nats-Msg-Id": "bbbbbbbbbbbb.903"})
        await stranger.close()
        await bus.log.append(fact(EVENTS + 1))
        expected = await one_by_one(bus, EVENTS + 7)
        assert [record async for record in present_records(bus.log)] == expected
        unreadable = [each for each in expected if isinstance(each.envelope.event, MessageUnreadable)]
        assert [each.seq for each in unreadable] == list(range(EVENTS + 1, EVENTS + 7))


async def test_a_server_with_a_token(own_server: NatsServer, job: JobId) -> None:
    server = NatsServer(own_server.log_path.parent / "guarded", token="t0/k:e%41n@")
    try:
        async with long_log(server.start(), job) as bus:
            await check_equal(bus, EVENTS)
    finally:
        server.stop()


async def test_it_continues_when_the_server_returns(own_server: NatsServer, job: JobId) -> None:
    async with long_log(own_server.start(), job) as bus:
        pieces = aiter(bus.log.encoded(0, EVENTS))
        found = [*await anext(pieces)]
        own_server.kill()
        starting = asyncio.create_task(asyncio.to_thread(own_server.start))
        found += [data async for some in pieces for data in some]
        await starting
        assert [codec.decode_envelope(data).number for data in found] == list(range(1, EVENTS + 1))


async def test_a_log_that_lost_its_beginning(nats_url: str, job: JobId) -> None:
    async with await connect(nats_url, job, SETTINGS) as bus:
        connection = bus.log._connection
        stream = subjects.events_stream(job)
        await connection.api(f"STREAM.DELETE.{stream}", {})
        lossy = {"name": stream, "subjects": subjects.event_patterns(job), "max_msgs": EVENTS - 10, "discard": "old"}
        await connection.api(f"STREAM.CREATE.{stream}", lossy)
        for first in range(1, EVENTS + 1, EVENTS_AT_ONCE_MAX):
            await bus.log.append_all([fact(number) for number in range(first, first + EVENTS_AT_ONCE_MAX)])
        with pytest.raises(PermanentError, match="what follows 0 was lost"):
            _ = [record async for record in present_records(bus.log)]
