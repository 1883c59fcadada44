"""The master's core and shell with messages on the log that can't be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.master.driver import plan
from tests.unit.master.test_service import PS, WORKER, Cluster, check, cluster, master, read_log

from elasticdl.master.core.fold import fold
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.stored_events import StoredEvent, to_stored
from elasticdl.shared.errors import FencedError, UnreadableError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Decided, TaskTaken
from elasticdl.shared.names import LAUNCHER, MASTER, PodName, Purpose
from elasticdl.views import core_snapshot

GARBAGE = b"\xff\x00garbage"


async def until(services: Cluster, step: int) -> None:
    while services.ledger.step < step:
        await asyncio.sleep(0)


@pytest.mark.parametrize("sender", [WORKER, PS, LAUNCHER, PodName("client-1")])
async def test_garbage_under_any_subject_is_counted_and_the_job_ends_exact(sender: PodName) -> None:
    async with cluster(plan(records=5000, epochs=3)) as services:
        running = asyncio.create_task(master(services).run())
        await until(services, 20)
        services.broker.records.append(StoredEvent(sender, "", GARBAGE))
        final = await running
        await check(services, final)
        (message,) = final.unreadable_messages.first
        assert (final.unreadable_messages.count, message.sender) == (1, sender)
        assert message.message.subject == f"event.{sender}"


async def test_garbage_among_the_decisions_fences_the_master_and_its_successor_continues() -> None:
    async with cluster(plan(records=20_000, epochs=2)) as services:
        running = asyncio.create_task(master(services).run())
        await until(services, 20)
        records = services.broker.records
        records.append_fenced(StoredEvent(MASTER, "", GARBAGE), records.last_fenced())
        with pytest.raises(FencedError):
            await running
        final = await master(services, "m2").run()
        await check(services, final)
        assert final.unreadable_messages.count == 1
        assert not final.unreadable_messages.lost_seq


async def test_a_decision_of_the_master_that_cant_be_read_is_one_sentence_with_the_way_out() -> None:
    async with cluster(plan(records=20_000, epochs=2)) as services:
        running = asyncio.create_task(master(services).run())
        await until(services, 20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        lost = damage(services.broker, next(seq for seq in await decisions(services) if seq > 5))
        with pytest.raises(UnreadableError, match=rf"record {lost} of the event log.*--rebuild_bus"):
            await master(services, "m2").run()
        assert fold(await read_log(services)).unreadable_messages.lost_seq == lost


async def decisions(services: Cluster) -> list[int]:
    return [record.seq for record in await read_log(services) if isinstance(record.envelope.event, Decided)]


def damage(broker: MemoryBroker, seq: int) -> int:
    stored = broker.records.data[seq - 1]
    broker.records.data[seq - 1] = StoredEvent(stored.sender, stored.id, GARBAGE)
    return seq


async def test_a_repeated_decision_does_not_fence_later_masters() -> None:
    async with cluster(plan(records=20_000, epochs=2)) as services:
        running = asyncio.create_task(master(services).run())
        await until(services, 20)
        records = services.broker.records
        again = records.data[records.last_fenced() - 1]
        records.data.append(again)
        records.fenced.append(len(records.data))
        records.changes.notify()
        with pytest.raises(FencedError):
            await running
        await check(services, await master(services, "m2").run())


async def test_a_task_that_the_job_does_not_have_and_a_number_far_ahead_change_nothing() -> None:
    async with cluster(plan(records=5000, epochs=3)) as services:
        running = asyncio.create_task(master(services).run())
        await until(services, 20)
        known = next(record.envelope for record in await read_log(services) if record.envelope.name == PS)
        taken = TaskTaken(task=TaskRef(purpose=Purpose.TRAIN, number=1 << 60), dispatch=1, attempt=1, reply="x")
        for number, event in ((known.number + 900, taken), (1 << 62, known.event)):
            services.broker.records.append(to_stored(replace(known, number=number, event=event)))
        final = await running
        assert final.job_state is JobState.SUCCEEDED
        assert final.unreadable_messages.count == 2


async def test_what_is_known_of_unreadable_messages_is_in_core_snapshots() -> None:
    async with cluster(plan(records=5000, epochs=3)) as services:
        services.broker.records.append(StoredEvent(WORKER, "", GARBAGE))
        final = await master(services).run()
        assert final.spec is not None
        again = core_snapshot.decode(core_snapshot.encode(final), final.spec)
        assert again.unreadable_messages == final.unreadable_messages
        assert again.unreadable_messages.count == 1
