"""The lanes of the broker, on the broker in memory."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import WorkerStarted
from elasticdl.shared.messages.registers import PsRegister, encode_register
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.worker.core.commands import AckTask, ExtendLease, NakTask, TakeTasks
from elasticdl.worker.core.events import QueueEmpty, TasksDelivered
from elasticdl.worker.core.tasks.leased import LeasedTask
from elasticdl.worker.execution.broker_lane import BrokerLane, Deliveries
from elasticdl.worker.ps_client import PsAddress
from elasticdl.worker.ps_client.addresses import Addresses


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


@pytest.fixture
def bus(loop: LoopThread) -> Bus:
    async def connect() -> Bus:
        return MemoryBroker().connect()

    return loop.call(connect())


def message(purpose: Purpose, number: int) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=1, term=1)


def broker_lane(bus: Bus) -> BrokerLane:
    envelopes = EnvelopeFactory(
        service=Service.WORKER, name=PodName("worker-0"), incarnation=Incarnation("cafe"), clock=SystemClock()
    )
    return BrokerLane(Deliveries(bus.tasks), EventPublisher(bus.log, envelopes), bus.stored_states)


def take(loop: LoopThread, lane: BrokerLane, wait_s: float = 0.0) -> LeasedTask:
    event = loop.call(lane.take(TakeTasks(wait_s=wait_s)))
    assert isinstance(event, TasksDelivered)
    (lease,) = event.leases
    return lease


def test_tasks_that_others_wait_for_come_before_training(loop: LoopThread, bus: Bus) -> None:
    wanted = [Purpose.TRAIN, Purpose.EXPORT, Purpose.EVALUATE, Purpose.MERGE]
    loop.call(bus.tasks.publish([(message(purpose, 1), False) for purpose in wanted]))
    lane = broker_lane(bus)
    assert [take(loop, lane).message.task.purpose for _ in wanted] == wanted[::-1]
    assert loop.call(lane.take(TakeTasks(wait_s=0.0))) == QueueEmpty()


def test_a_returned_task_is_delivered_again(loop: LoopThread, bus: Bus) -> None:
    loop.call(bus.tasks.publish([(message(Purpose.TRAIN, 1), False)]))
    lane = broker_lane(bus)
    first = take(loop, lane)
    loop.call(lane.extend(ExtendLease(lease=first)))
    loop.call(lane.nak(NakTask(lease=first)))
    second = take(loop, lane)
    assert (second.message, second.attempt) == (first.message, 2)
    loop.call(lane.ack(AckTask(lease=second)))
    loop.call(lane.extend(ExtendLease(lease=second)))  # Too late, and harmless.
    assert loop.call(lane.take(TakeTasks(wait_s=0.0))) == QueueEmpty()


def test_waiting_ends_when_a_task_comes(loop: LoopThread, bus: Bus) -> None:
    lane = broker_lane(bus)
    loop.spawn(bus.tasks.publish([(message(Purpose.TRAIN, 7), False)]))
    assert take(loop, lane, 30.0).message.task.number == 7


def test_the_publisher_numbers_what_it_stores(loop: LoopThread, bus: Bus) -> None:
    envelopes = EnvelopeFactory(
        service=Service.WORKER, name=PodName("worker-0"), incarnation=Incarnation("cafe"), clock=SystemClock()
    )
    publisher = EventPublisher(bus.log, envelopes)
    for _ in range(3):
        loop.call(publisher.publish(WorkerStarted(), cause="x"))

    async def first_three() -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        async for record in bus.log.read(0):
            found.append((record.envelope.number, record.envelope.id))
            if len(found) == 3:
                break
        return found

    assert loop.call(first_three()) == [(1, "cafe.1"), (2, "cafe.2"), (3, "cafe.3")]


def test_addresses_follow_the_registers(loop: LoopThread, bus: Bus) -> None:
    def register(incarnation: str) -> bytes:
        return encode_register(PsRegister(address="127.0.0.1:1", incarnation=Incarnation(incarnation)))

    async def written_and_seen() -> None:
        seq = await bus.registers.write("ring", b"\xff", after=0)
        assert seq
        seq = await bus.registers.write("ps-0", register("old"), after=0)
        await bus.registers.write("ps-0", register("new"), after=seq)

    loop.call(written_and_seen())
    failed: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    addresses = Addresses(bus.registers, loop, Placement.even(1), failed.put)
    expected = {PodName("ps-0"): PsAddress(address="127.0.0.1:1", incarnation=Incarnation("new"))}
    addresses.wait_known([PodName("ps-0")], timeout_s=DEADLINE_S)
    assert addresses.resolve() == expected
    loop.call(bus.close())  # The worker would not hear of a restarted ps any more, so it must not continue.
    assert isinstance(failed.get(timeout=DEADLINE_S), TransientError)


def test_a_task_that_another_worker_may_have_begun_is_not_a_first_one(loop: LoopThread, bus: Bus) -> None:
    loop.call(bus.tasks.publish([(message(Purpose.TRAIN, 0), True)]))
    loop.call(bus.tasks.publish([(message(Purpose.TRAIN, number), False) for number in (1, 2)]))
    lane = broker_lane(bus)
    assert not take(loop, lane).is_first
    event = loop.call(lane.take(TakeTasks(wait_s=0.0, count=5)))
    assert isinstance(event, TasksDelivered)
    assert [lease.is_first for lease in event.leases] == [True, True]
    loop.call(lane.nak(NakTask(lease=event.leases[0])))
    assert not take(loop, lane).is_first
