"""The supervisor over pods in memory: late, repeated and lost changes, and pods that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import ClosePin, StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodPending, PodStarted
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.memory import MemoryPods
from elasticdl.shared.pods.ports import EARLY_SEQ, PodStatus, Running
from elasticdl.shared.pods.supervisor import PodSupervisor, UnreportedPod

PS, WORKER = PodName("ps-0"), PodName("worker-0")
FIRST, SECOND = PodInstance("first"), PodInstance("second")
START = StartPod(pod=PS, service=Service.PS)
MARK = PodName("ps-9")
"""A pod whose start shows that everything before it was reported."""


class Scripted:
    """A supervisor over scripted pods, and what it published."""

    def __init__(self, *known: PodStatus) -> None:
        self.pods = MemoryPods()
        self.published: list[Event] = []
        self.supervisor = PodSupervisor(self.pods, lambda event, cause="": self._publish(event), known)
        self._marked = asyncio.Event()
        self._marks = 0
        self.running = asyncio.create_task(self.supervisor.run())

    def _publish(self, event: Event) -> None:
        if isinstance(event, PodStarted) and event.pod == MARK:
            self._marked.set()
        elif not (isinstance(event, PodExited) and event.pod == MARK):
            self.published.append(event)

    async def take(self) -> list[Event]:
        """What was published since the last call."""
        self._marked.clear()
        self._marks += 2
        await self.pods.create(MARK, Service.PS, self._marks)
        self.pods.run(MARK, PodInstance(f"mark {self._marks}"))
        await asyncio.wait_for(self._marked.wait(), DEADLINE_S)
        self.pods.exit(MARK, 0)
        published, self.published = self.published, []
        return published

    async def start(self, creation_seq: int, instance: PodInstance) -> None:
        await self.supervisor.execute(START, str(creation_seq))
        self.pods.run(PS, instance)
        assert await self.take() == [PodStarted(pod=PS, service=Service.PS, instance=instance)]


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.running.cancel()


def lost(instance: PodInstance) -> PodExited:
    return PodExited(pod=PS, service=Service.PS, instance=instance, cause=ExitCause.NODE_LOST, exit_code=0)


async def test_late_and_repeated_changes_are_not_reported_again(scripted: Scripted) -> None:
    await scripted.start(5, FIRST)
    scripted.pods.exit(PS, 3)
    scripted.pods.repeat(PS)
    (exited,) = await scripted.take()
    assert isinstance(exited, PodExited) and exited.instance == FIRST
    await scripted.start(7, SECOND)
    scripted.pods.repeat(PS)
    assert await scripted.take() == []


async def test_a_pod_that_is_gone_has_lost_its_node(scripted: Scripted) -> None:
    await scripted.start(5, FIRST)
    scripted.pods.vanish(PS)
    assert await scripted.take() == [lost(FIRST)]
    await scripted.start(7, SECOND)


async def test_an_order_is_not_executed_again_after_its_pod_has_lost_its_node(scripted: Scripted) -> None:
    await scripted.start(3, FIRST)
    scripted.pods.vanish(PS)
    assert await scripted.take() == [lost(FIRST)]
    await scripted.supervisor.execute(START, "3")  # A successor of the master repeats it.
    assert scripted.pods.get(PS) is None
    await scripted.start(9, SECOND)


async def test_a_pod_that_a_repeated_order_has_created_again_is_another_pod(scripted: Scripted) -> None:
    await scripted.start(3, FIRST)
    scripted.pods.disconnect()
    scripted.pods.vanish(PS)  # With its node, before the supervisor has heard of it.
    scripted.pods.reconnect()
    await scripted.supervisor.execute(START, "3")  # A successor of the master repeats the order.
    scripted.pods.run(PS, SECOND)
    assert await scripted.take() == [lost(FIRST), PodStarted(pod=PS, service=Service.PS, instance=SECOND)]
    scripted.pods.repeat(PS)
    assert await scripted.take() == []
    scripted.pods.exit(PS, 3)
    (exited,) = await scripted.take()
    assert isinstance(exited, PodExited) and exited.instance == SECOND


async def test_a_pod_is_reported_after_one_that_was_removed_before_it_started(scripted: Scripted) -> None:
    await scripted.supervisor.execute(START, "5")
    scripted.pods.vanish(PS)
    started, exited = await scripted.take()
    assert isinstance(started, PodStarted) and isinstance(exited, PodExited)
    await scripted.supervisor.execute(START, "7")
    scripted.pods.pend(PS, "no room")
    assert await scripted.take() == [PodPending(pod=PS, service=Service.PS, reason="no room")]


async def test_a_pod_that_another_supervisor_has_created_again_is_reported(scripted: Scripted) -> None:
    await scripted.start(3, FIRST)
    scripted.pods.vanish(PS)
    assert await scripted.take() == [lost(FIRST)]
    await scripted.pods.create(
        PS, Service.PS, 3
    )  # A former master, which has not heard of the loss, repeats the order.
    scripted.pods.run(PS, SECOND)
    assert await scripted.take() == [PodStarted(pod=PS, service=Service.PS, instance=SECOND)]
    scripted.pods.repeat(PS)
    await scripted.supervisor.execute(START, "9")
    assert await scripted.take() == []


async def test_a_successor_reports_the_end_of_a_pod_whose_order_it_repeats() -> None:
    scripted = Scripted(PodStatus(pod=PS, service=Service.PS, creation_seq=0, phase=Running(), instance=FIRST))
    await scripted.supervisor.execute(START, "3")  # Before it has listed the pods; the node of the first one is lost.
    scripted.pods.run(PS, SECOND)
    assert await scripted.take() == [lost(FIRST), PodStarted(pod=PS, service=Service.PS, instance=SECOND)]
    scripted.running.cancel()


async def test_what_happens_while_the_platform_is_away_is_reported_afterwards(scripted: Scripted) -> None:
    await scripted.start(5, FIRST)
    scripted.pods.disconnect()
    scripted.pods.exit(PS, -9, "Evicted")
    await asyncio.sleep(0)
    scripted.pods.reconnect()
    (exited,) = await scripted.take()
    assert isinstance(exited, PodExited) and (exited.instance, exited.cause) == (FIRST, ExitCause.PREEMPTED)


async def test_the_reason_why_a_pod_is_pending_is_reported_when_it_changes(scripted: Scripted) -> None:
    await scripted.supervisor.execute(START, "5")
    for reason in ("no room on any node", "no room on any node", "the image is being pulled"):
        scripted.pods.pend(PS, reason)
    assert await scripted.take() == [
        PodPending(pod=PS, service=Service.PS, reason="no room on any node"),
        PodPending(pod=PS, service=Service.PS, reason="the image is being pulled"),
    ]


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_successor_reports_what_became_of_the_pods_that_it_finds(is_there: bool) -> None:
    scripted = Scripted(PodStatus(pod=PS, service=Service.PS, creation_seq=0, phase=Running(), instance=FIRST))
    if is_there:
        await scripted.pods.create(PS, Service.PS, 5)
        scripted.pods.run(PS, FIRST)
    started = PodStarted(pod=PS, service=Service.PS, instance=FIRST)
    assert await scripted.take() == [started if is_there else lost(FIRST)]
    scripted.running.cancel()


async def test_a_pod_that_is_deleted_before_it_starts_is_reported_with_a_name_of_its_own(scripted: Scripted) -> None:
    await scripted.supervisor.execute(START, "5")
    await scripted.supervisor.execute(StopPod(pod=PS, reason="scaled down"), "6")
    started, exited = await scripted.take()
    assert isinstance(started, PodStarted) and isinstance(exited, PodExited)
    assert started.instance == exited.instance == "never started 5"


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_pod_from_before_the_master_is_reported_once_it_is_ordered(
    scripted: Scripted, *, is_running: bool
) -> None:
    await scripted.pods.create(PS, Service.PS, EARLY_SEQ)
    if is_running:
        scripted.pods.run(PS, FIRST)
    assert await scripted.take() == []
    await scripted.supervisor.execute(START, "5")
    if not is_running:
        scripted.pods.run(PS, FIRST)
    assert await scripted.take() == [PodStarted(pod=PS, service=Service.PS, instance=FIRST)]
    scripted.pods.exit(PS, 3)
    (exited,) = await scripted.take()
    assert isinstance(exited, PodExited) and exited.instance == FIRST


async def test_a_pod_that_ended_before_the_master_came_is_created_again() -> None:
    pods, published = MemoryPods(), list[Event]()
    await pods.create(PS, Service.PS, EARLY_SEQ)
    pods.run(PS, FIRST)
    pods.exit(PS, 75)
    supervisor = PodSupervisor(pods, lambda event, cause="": published.append(event))
    await supervisor.execute(START, "5")
    created = pods.get(PS)
    assert created is not None and created.creation_seq == 5
    assert published == []


async def test_other_commands_are_refused(scripted: Scripted) -> None:
    with pytest.raises(PermanentError, match="ClosePin is not a command about a pod"):
        await scripted.supervisor.execute(ClosePin(ps=PS, evaluation=1), "5")


@pytest.mark.parametrize("former", ["", "first"])
async def test_a_pod_that_a_former_supervisor_could_not_create_is_created(former: str) -> None:
    pods, published = MemoryPods(), []
    if former:  # Its end was reported; its successor was ordered, and has left no trace.
        await pods.create(PS, Service.PS, 3)
        pods.run(PS, FIRST)
        pods.exit(PS, 0)
    lost = UnreportedPod(pod=PS, service=Service.PS, former=PodInstance(former), is_wanted=True)
    gone = UnreportedPod(pod=WORKER, service=Service.WORKER, former=PodInstance(""), is_wanted=False)
    report: asyncio.Queue[Event] = asyncio.Queue()
    supervisor = PodSupervisor(pods, lambda event, cause="": report.put_nowait(event), (), (lost, gone), creation_seq=9)
    running = asyncio.create_task(supervisor.run())
    while True:
        published.append(await asyncio.wait_for(report.get(), DEADLINE_S))
        if isinstance(published[-1], PodExited) and published[-1].pod == WORKER:
            break
    assert published[-1].cause is ExitCause.STOPPED
    created = pods.get(PS)
    assert created is not None
    assert created.creation_seq == 9
    pods.run(PS, SECOND)
    while not (isinstance(event := await asyncio.wait_for(report.get(), DEADLINE_S), PodStarted)):
        pass
    assert event.instance == SECOND
    running.cancel()


async def test_a_pod_that_a_former_supervisor_created_is_not_created_again() -> None:
    pods = MemoryPods()
    await pods.create(PS, Service.PS, 5)
    pods.run(PS, SECOND)
    report: asyncio.Queue[Event] = asyncio.Queue()
    ordered = UnreportedPod(pod=PS, service=Service.PS, former=FIRST, is_wanted=True)
    supervisor = PodSupervisor(pods, lambda event, cause="": report.put_nowait(event), (), (ordered,), creation_seq=9)
    running = asyncio.create_task(supervisor.run())
    event = await asyncio.wait_for(report.get(), DEADLINE_S)
    assert event == PodStarted(pod=PS, service=Service.PS, instance=SECOND)
    assert [status.creation_seq for status in await pods.list()] == [5]
    running.cancel()
