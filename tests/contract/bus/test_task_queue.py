from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.bus.values import task
from tests.deadline import DEADLINE_S

from elasticdl.shared.bus import Bus, Delivery
from elasticdl.shared.names import Purpose

TRAIN = [Purpose.TRAIN]

Connect = Callable[[], Awaitable[Bus]]


async def take_soon(bus: Bus, purposes: list[Purpose]) -> Delivery:
    """Take the next task, waiting for leases to run out if need be."""
    async with asyncio.timeout(20):
        while True:
            delivery = await bus.tasks.take(purposes)
            if delivery is not None:
                return delivery
            await bus.tasks.wait(0.1)


async def test_nothing_is_taken_from_an_empty_queue(bus: Bus) -> None:
    assert await bus.tasks.take([Purpose.EVALUATE, Purpose.TRAIN]) is None


async def test_tasks_come_in_order_and_an_acknowledged_one_never_again(bus: Bus) -> None:
    await bus.tasks.publish([(task(number), False) for number in range(3)])
    for number in range(3):
        delivery = await bus.tasks.take(TRAIN)
        assert delivery is not None
        assert (delivery.task, delivery.attempt) == (task(number), 1)
        await delivery.ack()
    assert await bus.tasks.take(TRAIN) is None


async def test_a_task_is_given_to_one_worker_only(connect_bus: Connect) -> None:
    first, second = await connect_bus(), await connect_bus()
    await first.tasks.publish([(task(0), False)])
    assert await first.tasks.take(TRAIN) is not None
    assert await second.tasks.take(TRAIN) is None


async def test_purposes_in_the_order_asked_for_and_again_before_first(bus: Bus) -> None:
    evaluate = task(0, purpose=Purpose.EVALUATE)
    await bus.tasks.publish([(task(0), False), (evaluate, False), (task(1, dispatch=2), True)])
    taken = [await bus.tasks.take([Purpose.EVALUATE, Purpose.TRAIN]) for _ in range(4)]
    assert [each.task if each else None for each in taken] == [evaluate, task(1, dispatch=2), task(0), None]


async def test_a_purpose_without_tasks_comes_first_again_when_one_is_published(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False), (task(1), False)])
    taken = await bus.tasks.take([Purpose.EVALUATE, Purpose.TRAIN])
    assert taken is not None and taken.task == task(0)
    evaluate = task(0, purpose=Purpose.EVALUATE)
    await bus.tasks.publish([(evaluate, False)])
    await bus.tasks.wait(DEADLINE_S)
    taken = await bus.tasks.take([Purpose.EVALUATE, Purpose.TRAIN])
    assert taken is not None and taken.task == evaluate


async def test_a_task_is_queued_once_per_dispatch(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False), (task(0), False), (task(0, dispatch=2), True)])
    taken = [await bus.tasks.take(TRAIN) for _ in range(3)]
    assert [each.task.dispatch if each else None for each in taken] == [2, 1, None]


async def test_a_returned_task_is_delivered_again_with_the_next_attempt(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False)])
    for attempt in (1, 2, 3):
        delivery = await take_soon(bus, TRAIN)
        assert delivery.attempt == attempt
        await delivery.nak()


async def test_the_master_gives_a_dead_workers_task_back(connect_bus: Connect) -> None:
    master, dead, alive = await connect_bus(), await connect_bus(), await connect_bus()
    await master.tasks.publish([(task(0), False)])
    delivery = await dead.tasks.take(TRAIN)
    assert delivery is not None
    assert await alive.tasks.take(TRAIN) is None
    await master.tasks.give_back(delivery.reply)
    again = await alive.tasks.take(TRAIN)
    assert again is not None
    assert (again.task, again.attempt) == (task(0), 2)


async def test_giving_back_too_late_is_harmless(connect_bus: Connect) -> None:
    master, worker = await connect_bus(), await connect_bus()
    await master.tasks.publish([(task(0), False)])
    delivery = await worker.tasks.take(TRAIN)
    assert delivery is not None
    await delivery.ack()
    assert await worker.tasks.take(TRAIN) is None  # The answer shows that the server has received the ack.
    await master.tasks.give_back(delivery.reply)
    assert await worker.tasks.take(TRAIN) is None


async def test_a_silent_workers_lease_runs_out(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False)])
    assert await bus.tasks.take(TRAIN) is not None
    assert await bus.tasks.take(TRAIN) is None
    again = await take_soon(bus, TRAIN)
    assert again.attempt == 2


async def test_the_first_attempts_ack_counts_after_its_lease_ran_out(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False)])
    first = await bus.tasks.take(TRAIN)
    assert first is not None
    second = await take_soon(bus, TRAIN)
    await first.ack()
    await second.nak()
    assert await bus.tasks.take(TRAIN) is None


async def test_waiting_ends_when_tasks_are_published_even_before_the_wait(connect_bus: Connect) -> None:
    master, worker = await connect_bus(), await connect_bus()
    assert await worker.tasks.take(TRAIN) is None
    waiting = asyncio.create_task(worker.tasks.wait(2 * DEADLINE_S))
    await master.tasks.publish([(task(0), False)])
    await asyncio.wait_for(waiting, DEADLINE_S)
    assert await worker.tasks.take(TRAIN) is not None
    assert await worker.tasks.take(TRAIN) is None
    await master.tasks.publish([(task(1), False)])
    await asyncio.wait_for(worker.tasks.wait(2 * DEADLINE_S), DEADLINE_S)
    assert await worker.tasks.take(TRAIN) is not None


async def test_waiting_ends_by_itself(bus: Bus) -> None:
    assert await bus.tasks.take(TRAIN) is None
    await asyncio.wait_for(bus.tasks.wait(0.01), DEADLINE_S)


async def test_purging_forgets_waiting_and_delivered_tasks(bus: Bus) -> None:
    await bus.tasks.publish([(task(number), False) for number in range(3)])
    delivery = await bus.tasks.take(TRAIN)
    assert delivery is not None
    queued = await bus.tasks.last_seq()
    assert queued == 3
    await bus.tasks.purge(queued)
    await delivery.nak()
    assert await bus.tasks.take(TRAIN) is None
    await bus.tasks.publish([(task(7, dispatch=9), False)])
    await bus.tasks.purge(queued)  # Late: by a process that was frozen before.
    fresh = await bus.tasks.take(TRAIN)
    assert fresh is not None
    assert fresh.task == task(7, dispatch=9)
    assert await bus.tasks.last_seq() == 4


async def test_an_extended_lease_lasts(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False)])
    delivery = await bus.tasks.take(TRAIN)
    assert delivery is not None
    for _ in range(20):  # 2 s, twice the lease
        await delivery.extend()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.1)
        assert await bus.tasks.take(TRAIN) is None


async def test_returned_tasks_come_before_those_that_were_never_delivered(bus: Bus) -> None:
    await bus.tasks.publish([(task(number), False) for number in range(4)])
    taken = [await bus.tasks.take(TRAIN) for _ in range(2)]
    for delivery in taken:
        assert delivery is not None
        await delivery.nak()
    again = [await take_soon(bus, TRAIN) for _ in range(4)]
    assert [(delivery.task.task.number, delivery.attempt) for delivery in again] == [(0, 2), (1, 2), (2, 1), (3, 1)]


async def test_a_task_that_was_acknowledged_is_not_queued_again_by_a_repetition(bus: Bus) -> None:
    await bus.tasks.publish([(task(0), False)])
    delivery = await bus.tasks.take(TRAIN)
    assert delivery is not None
    await delivery.ack()
    await bus.tasks.publish([(task(0), False)])
    assert await bus.tasks.take(TRAIN) is None


async def test_several_training_tasks_are_taken_at_once_but_one_of_any_other_purpose(bus: Bus) -> None:
    evaluations = [task(number, purpose=Purpose.EVALUATE) for number in range(2)]
    again = task(9, dispatch=2)
    await bus.tasks.publish([(task(number), False) for number in range(5)])
    await bus.tasks.publish([*((each, False) for each in evaluations), (again, True)])
    taken = [await bus.tasks.take_several([Purpose.EVALUATE, Purpose.TRAIN], 3) for _ in range(6)]
    assert [[each.task for each in some] for some in taken] == [
        *([each] for each in evaluations),
        [again],
        [task(0), task(1), task(2)],
        [task(3), task(4)],
        [],
    ]
    assert [each.again for some in taken[2:4] for each in some] == [True, False, False, False]
    for some in taken:
        for each in some:
            await each.ack()
    assert await bus.tasks.take(TRAIN) is None
