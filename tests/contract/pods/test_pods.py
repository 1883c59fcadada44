"""What every adapter of ``Pods`` does, and what the supervisor reports of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.contract.pods.platforms import Platform
from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.commands import StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodPending, PodStarted
from elasticdl.shared.names import NO_INSTANCE, PodName, Service
from elasticdl.shared.pods.ports import Ended, Pending, Phase, PodStatus, Running
from elasticdl.shared.pods.supervisor import PodSupervisor

PS, WORKER = PodName("ps-0"), PodName("worker-0")
ENDS = [
    (0, ExitCause.FINISHED),
    (1, ExitCause.REFUSED),
    (2, ExitCause.REFUSED),
    (3, ExitCause.OWN_FAULT),
    (75, ExitCause.DISCONNECTED),
    (-9, ExitCause.PREEMPTED),
    (-15, ExitCause.PREEMPTED),
    (-11, ExitCause.OWN_FAULT),
    (-6, ExitCause.OWN_FAULT),
]


class Supervised:
    """A supervisor that runs, and what it publishes."""

    def __init__(self, platform: Platform) -> None:
        self._published: asyncio.Queue[Event] = asyncio.Queue()
        self.supervisor = PodSupervisor(platform.pods, lambda event, cause="": self._published.put_nowait(event))
        self._running = asyncio.create_task(self.supervisor.run())

    async def start(self, pod: PodName, service: Service, order: int) -> None:
        await self.supervisor.execute(StartPod(pod=pod, service=service), str(order))

    async def next(self) -> Event:
        return await asyncio.wait_for(self._published.get(), DEADLINE_S)

    async def started(self) -> PodStarted:
        while isinstance(event := await self.next(), PodPending):
            pass
        assert isinstance(event, PodStarted)
        return event

    async def exited(self) -> PodExited:
        event = await self.next()
        assert isinstance(event, PodExited)
        return event

    async def pending(self) -> PodPending:
        event = await self.next()
        assert isinstance(event, PodPending)
        return event

    async def restart(self) -> None:
        await self.stop()
        self._running = asyncio.create_task(self.supervisor.run())

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    @property
    def is_silent(self) -> bool:
        return self._published.empty()


@pytest.fixture
async def supervised(platform: Platform) -> AsyncIterator[Supervised]:
    supervised = Supervised(platform)
    yield supervised
    await supervised.stop()


async def until(platform: Platform, pod: PodName, phase: type[Phase]) -> PodStatus:
    """The status of a pod once it is in a phase."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for status in await platform.pods.list():
                if status.pod == pod and isinstance(status.phase, phase):
                    return status
            with contextlib.suppress(TransientError):
                await anext(platform.pods.watch())


async def until_ended(platform: Platform, pod: PodName) -> PodStatus:
    """The status of a pod once it has ended."""
    return await until(platform, pod, Ended)


async def run_ps(platform: Platform, creation_seq: int) -> PodStatus:
    """Create a ps; returns its status once it runs."""
    await platform.pods.create(PS, Service.PS, creation_seq)
    return await until(platform, PS, Running)


async def test_a_pod_is_created_once_by_one_command(platform: Platform) -> None:
    first = await run_ps(platform, 5)
    assert first.creation_seq == 5 and first.instance
    assert await platform.pods.create(PS, Service.PS, 5) == first
    assert await platform.pods.create(PS, Service.PS, 6) == first
    await platform.finish(PS, 0)
    ended = await until_ended(platform, PS)
    assert await platform.pods.create(PS, Service.PS, 5) == ended
    later = await run_ps(platform, 7)
    assert later.creation_seq == 7 and later.instance not in ("", first.instance)


async def test_a_deletion_ends_no_later_pod(platform: Platform) -> None:
    first = await run_ps(platform, 5)
    await platform.finish(PS, 3)
    await until_ended(platform, PS)
    second = await run_ps(platform, 7)
    await platform.pods.delete(PS, first.instance, 8, kill=True)
    await platform.pods.delete(PS, NO_INSTANCE, 6, kill=True)
    assert await platform.pods.list() == (second,)
    await platform.pods.delete(PS, NO_INSTANCE, 8, kill=True)
    assert (await until_ended(platform, PS)).instance == second.instance


@pytest.mark.parametrize("kill", [False, True])
async def test_a_pod_that_is_deleted_ends_as_stopped(platform: Platform, supervised: Supervised, kill: bool) -> None:
    await supervised.start(PS, Service.PS, 5)
    started = await supervised.started()
    stop = StopPod(pod=PS, reason="scaled down", kill=kill, instance=started.instance)
    await supervised.supervisor.execute(stop, "6")
    exited = await supervised.exited()
    assert (exited.instance, exited.cause) == (started.instance, ExitCause.STOPPED)
    await supervised.supervisor.execute(stop, "6")
    await platform.pods.delete(PodName("ps-7"), NO_INSTANCE, 6, kill=kill)
    assert supervised.is_silent


@pytest.mark.parametrize(("exit_code", "cause"), ENDS)
async def test_every_end_is_reported_once_with_its_cause(
    platform: Platform, supervised: Supervised, exit_code: int, cause: ExitCause
) -> None:
    await supervised.start(PS, Service.PS, 5)
    started = await supervised.started()
    await supervised.restart()
    await platform.finish(PS, exit_code)
    exited = await supervised.exited()
    assert (exited.instance, exited.exit_code, exited.cause) == (started.instance, exit_code, cause)
    await supervised.restart()
    await supervised.start(PS, Service.PS, 5)
    await supervised.start(PS, Service.PS, 6)
    assert (await supervised.started()).instance != started.instance


async def test_an_end_that_no_watcher_saw_is_reported(platform: Platform, supervised: Supervised) -> None:
    await supervised.start(PS, Service.PS, 5)
    started = await supervised.started()
    await supervised.stop()
    await platform.finish(PS, 3)
    await until_ended(platform, PS)
    assert supervised.is_silent
    await supervised.restart()
    assert (await supervised.exited()).instance == started.instance


async def test_out_of_memory_is_a_cause_of_its_own(platform: Platform, supervised: Supervised) -> None:
    await supervised.start(PS, Service.PS, 5)
    await supervised.started()
    await platform.run_out_of_memory(PS)
    assert (await supervised.exited()).cause is ExitCause.OUT_OF_MEMORY


async def test_a_pod_is_pending_until_it_can_start(platform: Platform, supervised: Supervised) -> None:
    await supervised.start(WORKER, Service.WORKER, 5)
    assert (await supervised.pending()).reason
    (listed,) = await platform.pods.list()
    assert isinstance(listed.phase, Pending)
    platform.prepare()
    assert (await supervised.started()).pod == WORKER


async def test_a_start_that_is_refused_is_reported(platform: Platform, supervised: Supervised) -> None:
    await supervised.start(WORKER, Service.WORKER, 5)
    await supervised.pending()
    platform.prepare(refusal="/no/such/program")
    started, exited = await supervised.started(), await supervised.exited()
    assert (exited.instance, exited.cause) == (started.instance, ExitCause.REFUSED)
    assert "/no/such/program" in exited.log_tail


async def test_a_pod_that_never_started_can_be_deleted(platform: Platform, supervised: Supervised) -> None:
    await supervised.start(WORKER, Service.WORKER, 5)
    await supervised.pending()
    await supervised.supervisor.execute(StopPod(pod=WORKER, reason="the job was stopped"), "6")
    started, exited = await supervised.started(), await supervised.exited()
    assert (exited.instance, exited.cause) == (started.instance, ExitCause.STOPPED)
    platform.prepare()
    await supervised.start(WORKER, Service.WORKER, 7)
    assert (await supervised.started()).instance != started.instance


async def test_a_new_list_ends_the_former_watch(platform: Platform) -> None:
    await platform.pods.list()
    watch = platform.pods.watch()
    await platform.pods.create(PS, Service.PS, 5)
    assert (await anext(watch)).pod == PS
    await platform.pods.list()
    with pytest.raises(TransientError):
        while True:
            await anext(watch)
