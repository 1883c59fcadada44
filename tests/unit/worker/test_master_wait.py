"""A worker that was created before its master."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.events import PodStarted
from elasticdl.shared.names import MASTER, PodInstance, PodName, Service
from elasticdl.shared.pods.early import wait_for_master
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher

WORKER, FORMER, OWN = PodName("worker-0"), PodInstance("former"), PodInstance("own")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.stop()


def start(loop: LoopThread, bus: Bus, instance: PodInstance) -> None:
    """What the master's supervisor publishes once the master has ordered the pod."""
    envelopes = EnvelopeFactory(service=Service.MASTER, name=MASTER, clock=SystemClock())
    started = PodStarted(pod=WORKER, service=Service.WORKER, instance=instance)
    loop.call(QueuedEventPublisher(bus.log, envelopes).open(started))


def test_a_worker_begins_when_the_master_has_taken_it_over(loop: LoopThread) -> None:
    bus = MemoryBroker().connect()
    start(loop, bus, FORMER)
    start(loop, bus, OWN)
    wait_for_master(bus.log, loop, WORKER, OWN, 60.0)


def test_a_worker_whose_master_does_not_come_ends(loop: LoopThread) -> None:
    bus = MemoryBroker().connect()
    start(loop, bus, FORMER)
    with pytest.raises(TransientError, match=re.escape("did not take over this pod within 0.2 s")):
        wait_for_master(bus.log, loop, WORKER, OWN, 0.2)
