"""The outbox runs the commands of decisions, also while NATS is unreachable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from tests.deadline import DEADLINE_S
from tests.unit.master.driver import Driver

from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.master.outbox import LedgerReads, Outbox
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.tasks import MemoryTaskQueue
from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.commands import Command, Dispatch, OpenPin, ReadLedgers, StartPod, StopPod
from elasticdl.shared.messages.events import CommandFailure, CommandsRan, Decided, Event, LedgersRead, SnapshotDamaged
from elasticdl.shared.model.manifests import DamagedError
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.shared.process.clock import SystemClock


class AwayAtFirst(MemoryTaskQueue):
    """A queue that gives up on its first publications, as after a long absence of the broker."""

    refusals = 3

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise TransientError("given up", retry_after_s=0.0)
        await super().publish(messages)


async def test_a_dispatch_is_queued_however_often_nats_was_unreachable() -> None:
    broker = MemoryBroker()
    bus = broker.connect()
    bus.tasks = AwayAtFirst(bus.client, bus.tasks.state)
    reports: asyncio.Queue[Event] = asyncio.Queue()
    outbox = Outbox(bus, SystemClock(), lambda manifest: (), Driver().state, reports.put_nowait)
    dispatch = Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((0, 2),))
    running = asyncio.create_task(outbox.run())
    outbox.put(7, Decided(term=1, after_seq=1, now_s=0.0, commands=(dispatch,), reasons=()))
    assert await reports.get() == CommandsRan(up_to=7)
    running.cancel()
    worker = broker.connect()
    taken = [await worker.tasks.take((Purpose.TRAIN,)) for _ in range(3)]
    assert [delivery.task.task.number if delivery else None for delivery in taken] == [0, 1, None]


def test_a_successor_sends_the_messages_of_the_term_that_decided_them() -> None:
    state = Driver().state
    dispatch = Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((0, 2),))
    before = list(task_messages(state, dispatch, term=1))
    state.term = 2
    assert list(task_messages(state, dispatch, term=1)) == before
    assert {message.term for message in before} == {1}


async def test_a_damaged_final_snapshot_is_reported_and_stops_no_process() -> None:
    reports: asyncio.Queue[Event] = asyncio.Queue()

    def read(manifest: str) -> tuple[()]:
        raise DamagedError(manifest, "is missing")

    outbox = Outbox(MemoryBroker().connect(), SystemClock(), read, Driver().state, reports.put_nowait)
    running = asyncio.create_task(outbox.run())
    reading = ReadLedgers(ps=PodName("ps-0"), manifest="m/1")
    outbox.put(7, Decided(term=1, after_seq=1, now_s=0.0, commands=(reading,), reasons=()))
    found = await reports.get()
    assert found == SnapshotDamaged(ps=PodName("ps-0"), snapshot="m/1", object="m/1", problem="is missing")
    assert await reports.get() == CommandsRan(up_to=7)
    running.cancel()


async def test_no_other_command_waits_for_a_ps_that_is_gone() -> None:
    broker = MemoryBroker()
    reports: asyncio.Queue[Event] = asyncio.Queue()
    outbox = Outbox(broker.connect(), SystemClock(), lambda manifest: (), Driver().state, reports.put_nowait)
    gone, other, launcher = broker.connect(), broker.connect(), broker.connect()
    answer, obeyed = asyncio.Event(), asyncio.Queue[str]()

    async def never_answers(command: Command, cause: str) -> None:
        await obeyed.put(f"ps-0 {cause}")
        await answer.wait()
        raise PermanentError("closing")

    async def obeys(command: Command, cause: str) -> None:
        await obeyed.put(f"{type(command).__name__} {cause}")

    await gone.signals.serve_orders(PodName("ps-0"), never_answers)
    await other.signals.serve_orders(PodName("ps-1"), obeys)
    await launcher.signals.serve_orders(PodName("launcher"), obeys)
    running = asyncio.create_task(outbox.run())
    pins = tuple(OpenPin(ps=PodName(f"ps-{number}"), evaluation=1, version=1) for number in range(2))
    start = StartPod(pod=PodName("ps-0"), service=Service.PS)
    outbox.put(7, Decided(term=1, after_seq=1, now_s=0.0, commands=pins, reasons=()))
    outbox.put(8, Decided(term=1, after_seq=7, now_s=0.0, commands=(start,), reasons=()))
    assert {await obeyed.get() for _ in range(3)} == {"ps-0 7", "OpenPin 7", "StartPod 8"}
    assert reports.empty()  # A successor has to see what may not have been obeyed, and all that came after it.
    answer.set()
    failure = CommandFailure(position=0, message="ps-0 refused: ps-0 refused OpenPin: closing")
    assert await reports.get() == CommandsRan(up_to=7, failures=(failure,))
    assert await reports.get() == CommandsRan(up_to=8)
    running.cancel()


async def test_no_other_command_waits_for_a_storage_that_hangs() -> None:
    broker = MemoryBroker()
    reports: asyncio.Queue[Event] = asyncio.Queue()
    storage_is_back = threading.Event()

    def hangs(manifest: str) -> tuple[()]:
        assert storage_is_back.wait(DEADLINE_S)
        return ()

    outbox = Outbox(broker.connect(), SystemClock(), hangs, Driver().state, reports.put_nowait)
    launcher, worker, started = broker.connect(), broker.connect(), asyncio.Event()

    async def obeys(command: Command, cause: str) -> None:
        started.set()

    await launcher.signals.serve_orders(PodName("launcher"), obeys)
    running = asyncio.create_task(outbox.run())
    reading = ReadLedgers(ps=PodName("ps-0"), manifest="m/1")
    start = StartPod(pod=PodName("ps-1"), service=Service.PS)
    dispatch = Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((0, 1),))
    outbox.put(7, Decided(term=1, after_seq=1, now_s=0.0, commands=(reading, start), reasons=()))
    outbox.put(8, Decided(term=1, after_seq=7, now_s=0.0, commands=(dispatch,), reasons=()))
    await asyncio.wait_for(started.wait(), DEADLINE_S)
    while await worker.tasks.take((Purpose.TRAIN,)) is None:
        await asyncio.sleep(0)
    assert reports.empty()
    storage_is_back.set()
    assert [await reports.get() for _ in range(3)] == [
        LedgersRead(ps=PodName("ps-0"), manifest="m/1", ledgers=()),
        CommandsRan(up_to=7),
        CommandsRan(up_to=8),
    ]
    running.cancel()


async def test_a_read_that_hangs_holds_one_thread_however_often_it_is_ordered() -> None:
    storage_is_back, calls = threading.Event(), list[str]()

    def hangs(manifest: str) -> tuple[()]:
        calls.append(manifest)
        assert storage_is_back.wait(DEADLINE_S)
        return ()

    reads = LedgerReads(hangs)
    waiting = [asyncio.create_task(reads.read("m/1")) for _ in range(3)]
    other = asyncio.create_task(reads.read("m/2"))
    while len(calls) < 2:
        await asyncio.sleep(0)
    waiting[0].cancel()  # It has waited for too long.
    storage_is_back.set()
    assert not any(await asyncio.gather(waiting[1], waiting[2], other))
    assert sorted(calls) == ["m/1", "m/2"]


async def test_a_read_that_has_failed_is_tried_again_when_it_is_ordered_again() -> None:
    errors = [TransientError("the store is away")]

    def read(manifest: str) -> tuple[()]:
        if errors:
            raise errors.pop()
        return ()

    reads = LedgerReads(read)
    with pytest.raises(TransientError, match="the store is away"):
        await reads.read("m/1")
    assert await reads.read("m/1") == ()


async def test_the_commands_of_one_lane_run_in_the_order_of_the_log() -> None:
    broker = MemoryBroker()
    reports: asyncio.Queue[Event] = asyncio.Queue()
    outbox = Outbox(broker.connect(), SystemClock(), lambda manifest: (), Driver().state, reports.put_nowait)
    launcher, obeyed = broker.connect(), list[str]()

    async def obeys(command: Command, cause: str) -> None:
        await asyncio.sleep(0)
        obeyed.append(f"{type(command).__name__} {cause}")

    await launcher.signals.serve_orders(PodName("launcher"), obeys)
    running = asyncio.create_task(outbox.run())
    pod = PodName("worker-0")
    for seq in (7, 8, 9):
        command = StopPod(pod=pod, reason="") if seq == 8 else StartPod(pod=pod, service=Service.WORKER)
        outbox.put(seq, Decided(term=1, after_seq=1, now_s=0.0, commands=(command,), reasons=()))
    assert [await reports.get() for _ in range(3)] == [CommandsRan(up_to=seq) for seq in (7, 8, 9)]
    assert obeyed == ["StartPod 7", "StopPod 8", "StartPod 9"]
    running.cancel()
