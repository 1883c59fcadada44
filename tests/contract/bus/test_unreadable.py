"""Messages that can't be read, of every kind: both brokers give the same typed value for them, and nothing ends."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b

import pytest
from tests.contract.bus.conftest import SETTINGS
from tests.contract.bus.values import decision, fact, task

from elasticdl.shared.bus import Bus, subjects
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.broker import MemoryBus
from elasticdl.shared.bus.nats_bus import connect
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.reading import read_present, read_spec
from elasticdl.shared.bus.stored_events import StoredEvent
from elasticdl.shared.errors import FencedError, UnreadableError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import LogRecord, MessageUnreadable
from elasticdl.shared.names import LAUNCHER, MASTER, JobId, PodName, Purpose, Service


@dataclass
class Stranger:
    """Publishes bytes under the subjects of a job."""

    bus: Bus
    event: Callable[[Service, PodName, bytes, str, str], Awaitable[None]]
    """(service, sender, data, message id, payload)"""
    task: Callable[[bytes], Awaitable[None]]
    payload: Callable[[str, bytes], Awaitable[None]]


@pytest.fixture(params=["memory", "nats"])
async def stranger(request: pytest.FixtureRequest, job: JobId) -> AsyncIterator[Stranger]:
    if request.param == "memory":
        yield in_memory()
        return
    url = request.getfixturevalue("nats_url")
    bus, connection = await connect(url, job, SETTINGS), await Connection.open(url, job, SETTINGS)

    async def event(service: Service, sender: PodName, data: bytes, message_id: str, payload: str) -> None:
        subject = subjects.decision(job) if service is Service.MASTER else subjects.event(job, service, sender)
        headers = {"Nats-Msg-Id": message_id, "Elasticdl-Payload": payload}
        await connection.store(subjects.events_stream(job), subject, data, {k: v for k, v in headers.items() if v})

    async def task_bytes(data: bytes) -> None:
        await connection.store(subjects.tasks_stream(job), subjects.task(job, Purpose.TRAIN), data, {})

    async def payload_part(name: str, data: bytes) -> None:
        await connection.store(subjects.payloads_stream(job), subjects.payload(job, name), data, {})

    yield Stranger(bus, event, task_bytes, payload_part)
    await connection.close()
    await bus.close()


def in_memory() -> Stranger:
    broker = MemoryBroker(SETTINGS)
    bus: MemoryBus = broker.connect()

    async def event(service: Service, sender: PodName, data: bytes, message_id: str, payload: str) -> None:
        stored = StoredEvent(sender, message_id, data, payload)
        if service is Service.MASTER:
            broker.records.append_fenced(stored, broker.records.last_fenced())
        else:
            broker.records.append(stored)

    async def task_bytes(data: bytes) -> None:
        broker.queue.publish_bytes(Purpose.TRAIN, data)

    async def payload_part(name: str, data: bytes) -> None:
        broker.payloads.write(name, data, 0, "")

    return Stranger(bus, event, task_bytes, payload_part)


async def unreadable(bus: Bus) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    for record in await read_present(bus.log):
        if isinstance(record.envelope.event, MessageUnreadable):
            found.append((record.seq, record.envelope.name, record.envelope.event.reason))
    return found


WORKER = PodName("worker-0")
GARBAGE = b"\xff\x00garbage"


@pytest.mark.parametrize(
    ("data", "message_id", "payload", "reason"),
    [
        (GARBAGE, "", "", "not a valid"),
        (b"", "", "", "value that this version does not know"),
        (codec.encode_envelope(fact(1))[:-1], "", "", ""),
        (codec.encode_envelope(decision(1)), "cafe.1", "", "under the subject of worker-0"),
        (b"", "cafe.1", "ab.30000000", "not the name of a payload"),
        (b"", "cafe.1", f"{'a' * 32}.30000000", "not the name of a payload"),
        (b"", "cafe.1", f"{'a' * 32}.2", "has lost its payload"),
    ],
)
async def test_a_record_that_cant_be_read_is_one_event_between_the_others(
    stranger: Stranger, data: bytes, message_id: str, payload: str, reason: str
) -> None:
    await stranger.bus.log.append(fact(1))
    await stranger.event(Service.WORKER, WORKER, data, message_id, payload)
    await stranger.bus.log.append(fact(2))
    first, _, last = await read_present(stranger.bus.log)
    assert (first.envelope.number, last.envelope.number) == (1, 2)
    ((seq, sender, text),) = await unreadable(stranger.bus)
    assert (seq, sender) == (2, WORKER)
    assert reason in text
    assert len(text) <= 120


async def test_a_payload_that_stands_for_far_more_than_it_is_takes_no_memory(stranger: Stranger) -> None:
    packed = zlib.compress(bytes(1 << 28), 9)
    digest = blake2b(packed, digest_size=16).hexdigest()
    await stranger.payload(f"{digest}-0", packed)
    await stranger.event(Service.WORKER, WORKER, b"", "cafe.1", f"{digest}.1")
    ((_, _, reason),) = await unreadable(stranger.bus)
    assert "stand for more than" in reason


async def test_a_master_whose_predecessor_is_followed_by_garbage_appends_after_it(stranger: Stranger) -> None:
    log = stranger.bus.log
    first = await log.append_fenced(decision(1), after=0)
    await stranger.event(Service.MASTER, MASTER, GARBAGE, "", "")
    with pytest.raises(FencedError):
        await log.append_fenced(decision(2), after=first)
    last = await log.last_fenced()
    assert isinstance(last, LogRecord)
    assert isinstance(last.envelope.event, MessageUnreadable)
    assert await log.append_fenced(decision(1, incarnation="nnnnnnnnnnnn"), after=last.seq) == 3


async def test_a_task_that_cant_be_read_is_removed_from_the_queue_and_noted(stranger: Stranger) -> None:
    queue = stranger.bus.tasks
    await stranger.task(GARBAGE)
    await stranger.task(b"")
    await queue.publish([(task(3), False)])
    taken = await queue.take_several([Purpose.TRAIN], 8)
    assert [delivery.task.task.number for delivery in taken] == [3]
    assert {(message.subject, message.seq) for message in queue.unreadable} == {("task.train", 1), ("task.train", 2)}
    await taken[0].ack()
    assert await queue.take([Purpose.TRAIN]) is None


async def test_a_task_that_is_put_aside_is_not_delivered_again(stranger: Stranger) -> None:
    queue = stranger.bus.tasks
    await queue.publish([(task(900), False)])
    delivery = await queue.take([Purpose.TRAIN])
    assert delivery is not None
    await delivery.put_aside("the job has no such task")
    assert await queue.take([Purpose.TRAIN]) is None
    (message,) = queue.unreadable
    assert (message.subject, message.reason) == ("task.train", "the job has no such task")


async def test_a_specification_that_cant_be_read_is_one_sentence_that_names_the_way_out(stranger: Stranger) -> None:
    await stranger.event(Service.LAUNCHER, LAUNCHER, GARBAGE, "", "")
    with pytest.raises(UnreadableError, match=r"record 1 of the event log.*--rebuild_bus"):
        await read_spec(stranger.bus.log)


async def test_a_rebuilt_bus_has_no_record_no_task_and_no_register(stranger: Stranger) -> None:
    bus = stranger.bus
    await bus.log.append(fact(1))
    await stranger.event(Service.WORKER, WORKER, GARBAGE, "", "")
    await bus.tasks.publish([(task(1), False)])
    await bus.registers.write("ps-0", GARBAGE, after=0)
    await bus.core_snapshots.write(MASTER, GARBAGE, after=0)
    await bus.rebuild()
    assert await bus.log.last_seq() == 0
    assert await bus.registers.read("ps-0") is None
    assert await bus.core_snapshots.read(MASTER) is None
    assert await bus.log.append(fact(1)) == 1
