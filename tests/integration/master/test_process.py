"""Real master and ps processes on a real broker, in situations that their keeper would end at once if it could."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deadline import DEADLINE_S
from tests.integration.service_harness import ServiceHarness
from tests.unit.master.driver import job_spec, plan

from elasticdl.shared.bus import BusSettings
from elasticdl.shared.bus.nats_bus import NatsBus
from elasticdl.shared.bus.ports import Delivery
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import Command, ReturnDelivery
from elasticdl.shared.messages.events import CommandsRan, Decided, Event, ExitCause, LogRecord
from elasticdl.shared.names import PodInstance, PodName, Purpose, Service
from elasticdl.shared.process.exit_codes import EXIT_AWAY
from elasticdl.shared.storage import to_uri

LEASE_S = 8.0
TRAIN = (Purpose.TRAIN,)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ServiceHarness]:
    spec = job_spec(plan(records=100, epochs=1), storage=to_uri(tmp_path / "storage"))
    harness = ServiceHarness(tmp_path, spec, BusSettings(lease_s=LEASE_S))  # A lease that is worth waiting for.
    yield harness
    harness.close()


# --- continued beside a successor, where it can't be killed: a node that was cut off ---------------------------------


def test_a_thawed_master_ends_and_says_why(harness: ServiceHarness) -> None:
    first = harness.master("first.log")
    harness.await_event(Decided)  # Before that it would begin another term, and the second master would end.
    first.send_signal(signal.SIGSTOP)
    second = harness.master("second.log")
    harness.await_event(events.TermStarted, 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(DEADLINE_S) == EXIT_AWAY
    assert '"event": "another master has taken over"' in harness.text("first.log")
    assert second.poll() is None
    assert "taken over" not in harness.text("second.log")


def test_a_thawed_ps_ends_and_says_why(harness: ServiceHarness) -> None:
    first = harness.ps("first.log")
    harness.await_event(events.PsStarted)
    first.send_signal(signal.SIGSTOP)
    second = harness.ps("second.log")
    harness.await_event(events.PsStarted, 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(DEADLINE_S) == 0
    assert '"event": "another incarnation of this ps has taken over"' in harness.text("first.log")
    second.terminate()
    assert second.wait(DEADLINE_S) == 0
    assert "taken over" not in harness.text("second.log")


# --- the lease alone brings a dead worker's task back ----------------------------------------------------------------


PODS: tuple[tuple[Service, str, Event], ...] = (
    (Service.PS, "ps-0", events.PsStarted(address="127.0.0.1:1")),
    (Service.WORKER, "worker-0", events.WorkerStarted()),
    (Service.WORKER, "worker-1", events.WorkerStarted()),
)


class Workers:
    """Two workers: the first takes a task and dies with it, the second takes what there is."""

    def __init__(self, harness: ServiceHarness) -> None:
        self._harness = harness
        self.dead, self.alive = harness.connect(), harness.connect()
        self._obeyed: list[Command] = []

    async def obey(self, command: Command, cause: str) -> None:
        """The launcher does nothing: the test says what happens."""
        self._obeyed.append(command)

    def begin(self) -> Delivery:
        """The job is under way; the first worker has its first task in hand, the second has done all others."""
        around = self._harness
        around.loop.call(around.bus.signals.serve_orders(PodName("launcher"), self.obey))
        around.await_event(Decided)
        for service, name, ready in PODS:
            started = events.PodStarted(pod=PodName(name), service=service, instance=PodInstance(name))
            around.publish(started, Service.LAUNCHER, "launcher")
            around.publish(ready, service, name)
        held = self.take(self.dead)
        around.publish(
            events.TaskTaken(task=held.task.task, dispatch=held.task.dispatch, attempt=1, reply=held.reply),
            Service.WORKER,
            "worker-0",
        )
        for _ in range(self._harness.spec.plan.tasks - 1):
            around.loop.call(self.take(self.alive).ack())
        return held

    def take(self, bus: NatsBus) -> Delivery:
        """The next task, however long it takes to come."""

        async def take() -> Delivery:
            async with asyncio.timeout(DEADLINE_S):
                while (delivery := await bus.tasks.take(TRAIN)) is None:
                    await bus.tasks.wait(0.5)
                return delivery

        return self._harness.loop.call(take())

    def is_nothing_there(self) -> bool:
        """Whether the queue has nothing to give now."""
        return self._harness.loop.call(self.alive.tasks.take(TRAIN)) is None

    def die(self) -> None:
        """The launcher says that the first worker is dead."""
        exited = events.PodExited(
            pod=PodName("worker-0"),
            service=Service.WORKER,
            instance=PodInstance("worker-0"),
            cause=ExitCause.PREEMPTED,
            exit_code=-9,
        )
        self._harness.publish(exited, Service.LAUNCHER, "launcher")

    def close(self) -> None:
        """Hang up."""
        for bus in (self.dead, self.alive):
            self._harness.loop.call(bus.close())


@pytest.fixture
def workers(harness: ServiceHarness) -> Iterator[Workers]:
    workers = Workers(harness)
    yield workers
    workers.close()


def await_return(harness: ServiceHarness) -> None:
    """Wait until the master has decided to give the delivery back, and has run that decision."""

    def returns(record: LogRecord) -> bool:
        event = record.envelope.event
        return isinstance(event, Decided) and any(isinstance(command, ReturnDelivery) for command in event.commands)

    decided = harness.await_record(returns)

    def ran(record: LogRecord) -> bool:
        event = record.envelope.event
        return isinstance(event, CommandsRan) and event.up_to >= decided.seq

    harness.await_record(ran)


def test_a_dead_workers_task_comes_back_at_once(harness: ServiceHarness, workers: Workers) -> None:
    harness.master("master.log")
    held = workers.begin()
    workers.die()
    await_return(harness)
    again = harness.loop.call(workers.alive.tasks.take(TRAIN))
    assert again is not None
    assert (again.task, again.attempt) == (held.task, 2)


def test_with_the_masters_returns_switched_off_the_lease_brings_it_back(
    harness: ServiceHarness, workers: Workers
) -> None:
    harness.master("master.log", return_deliveries=False)
    held = workers.begin()
    workers.die()
    await_return(harness)
    assert workers.is_nothing_there()
    again = workers.take(workers.alive)
    assert (again.task, again.attempt) == (held.task, 2)


def test_without_a_master_the_lease_brings_it_back(harness: ServiceHarness, workers: Workers) -> None:
    master = harness.master("master.log")
    held = workers.begin()
    master.kill()
    master.wait()
    workers.die()
    assert workers.is_nothing_there()
    again = workers.take(workers.alive)
    assert (again.task, again.attempt) == (held.task, 2)
