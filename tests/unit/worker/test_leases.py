"""A delivery is kept alive while work moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.clock import VirtualClock
from elasticdl.worker.training.leases import Leases

if TYPE_CHECKING:
    from elasticdl.worker.ports import Delivery


class Kept:
    """A delivery that counts its extensions."""

    def __init__(self, number: int, *, away: bool = False) -> None:
        self.message = TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=number), dispatch=1, term=1)
        self.attempt = 1
        self.reply = ""
        self.away = away
        self.extended = 0

    def ack(self) -> None: ...

    def nak(self) -> None: ...

    def extend(self) -> None:
        if self.away:
            raise TransientError("the broker is away")
        self.extended += 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


@pytest.fixture
def leases(clock: VirtualClock) -> Leases:
    return Leases(lease_s=9.0, batch_deadline_s=30.0, clock=clock)


def test_three_extensions_fit_into_a_lease(leases: Leases) -> None:
    assert leases.interval_s == 3.0


def test_a_worker_that_hangs_loses_its_tasks(leases: Leases, clock: VirtualClock) -> None:
    kept = Kept(1)
    leases.hold(kept)
    clock.advance(29.0)
    assert leases.extend() == 1
    clock.advance(1.0)
    assert leases.extend() == 0
    leases.progress()
    assert leases.extend() == 1
    assert kept.extended == 2


def test_a_pause_without_tasks_is_no_hang(leases: Leases, clock: VirtualClock) -> None:
    clock.advance(1000.0)
    leases.hold(Kept(1))
    assert leases.extend() == 1


def test_two_deliveries_of_a_task_leave_together(leases: Leases) -> None:
    first, second, other = Kept(1), Kept(1), Kept(2)
    for kept in (first, second, other):
        leases.hold(kept)
    expected: list[Delivery] = [first, second]
    assert leases.release(first.message.task) == expected
    assert leases.release(first.message.task) == []
    assert not leases.holds(first.message.task)
    assert leases.release_all() == [other]
    assert leases.extend() == 0


def test_a_broker_that_is_away_keeps_nobody_from_the_next_delivery(leases: Leases) -> None:
    away, kept = Kept(1, away=True), Kept(2)
    leases.hold(away)
    leases.hold(kept)
    leases.extend()
    assert kept.extended == 1
