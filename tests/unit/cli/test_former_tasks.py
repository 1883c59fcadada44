"""The queue of a job that is resumed: tasks of former runs go, those of a run that begins meanwhile stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.cli.job_log import SPEC

from elasticdl.cli.jobs.resumption import purge_former_tasks
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.bus.memory.tasks import MemoryTaskQueue
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Envelope, Event, JobResumed, JobSubmitted
from elasticdl.shared.names import LAUNCHER, Incarnation, Purpose, Service

FIRST, SECOND = Incarnation("first"), Incarnation("second")


class InterruptedQueue(MemoryTaskQueue):
    """A queue whose client is frozen before one of its requests arrives."""

    meanwhile: Callable[[], Awaitable[None]]

    async def purge(self, up_to: int) -> None:
        await self.meanwhile()
        await super().purge(up_to)


async def open_run(bus: MemoryBus, run: Incarnation, event: Event, task: int) -> None:
    """A run begins, and its master queues a task."""
    envelope = Envelope(service=Service.LAUNCHER, name=LAUNCHER, incarnation=run, number=1, time_s=0.0, event=event)
    await bus.log.append(envelope)
    message = TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, term=task)
    await bus.tasks.publish([(message, False)])


async def queued(bus: MemoryBus) -> list[int]:
    return [each.task.task.number for each in await bus.tasks.take_several([Purpose.TRAIN], 9)]


@pytest.fixture
async def bus() -> MemoryBus:
    bus = MemoryBroker().connect()
    await open_run(bus, FIRST, JobSubmitted(spec=SPEC), 1)
    return bus


async def test_the_tasks_of_former_runs_go(bus: MemoryBus) -> None:
    await purge_former_tasks(bus, FIRST)
    assert await queued(bus) == []


async def test_the_tasks_of_a_run_that_has_begun_stay(bus: MemoryBus) -> None:
    await open_run(bus, SECOND, JobResumed(reason="resumed", continues=FIRST), 2)
    await purge_former_tasks(bus, FIRST)
    assert 2 in await queued(bus)


async def test_a_process_that_was_frozen_removes_no_tasks_of_a_run_that_began_meanwhile(bus: MemoryBus) -> None:
    async def other_pod() -> None:
        await purge_former_tasks(bus, FIRST)
        await open_run(bus, SECOND, JobResumed(reason="resumed", continues=FIRST), 2)

    frozen = MemoryBroker.connect(bus._broker)
    frozen.tasks = InterruptedQueue(frozen.tasks.client, frozen.tasks.state)
    frozen.tasks.meanwhile = other_pod
    await purge_former_tasks(frozen, FIRST)
    assert await queued(bus) == [2]
