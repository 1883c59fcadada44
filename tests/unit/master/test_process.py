"""Real master and ps processes on a real broker, in situations that their keeper would end at once if it could."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.master.driver import job_spec, plan

from elasticdl.shared import events
from elasticdl.shared.bus import BusSettings
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.nats_bus import NatsBus, connect
from elasticdl.shared.bus.ports import Delivery
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.commands import Command, ReturnDelivery
from elasticdl.shared.events import CommandsRan, Decided, Envelope, Event, ExitCause, LogRecord
from elasticdl.shared.exits import EXIT_AWAY
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service, new_incarnation
from elasticdl.shared.settings import MasterSettings, ProcessSettings, PsSettings, to_environment
from elasticdl.shared.storage import to_uri

pytestmark = pytest.mark.e2e
DEADLINE_S = 200.0
LEASE_S = 8.0
TRAIN = (Purpose.TRAIN,)


class Surroundings:
    """A broker with a job on it, and processes of services; launcher and workers are voices of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = NatsServer(folder / "nats")
        self.url = self._server.start()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers: dict[str, int] = {}
        self._lives: dict[str, Incarnation] = {}
        self.loop = LoopThread()
        self.spec = job_spec(plan(records=100, epochs=1), storage=to_uri(folder / "storage"))
        self.bus = self.connect()
        self.say(events.JobSubmitted(spec=self.spec), Service.CLIENT, "client")

    def connect(self) -> NatsBus:
        """Another client, with a lease that is worth waiting for."""
        return self.loop.call(connect(self.url, self.spec.job, BusSettings(lease_s=LEASE_S)))

    def say(self, event: Event, service: Service, name: str) -> None:
        """Append an event in somebody's name."""
        life = self._lives.setdefault(name, new_incarnation())
        self._numbers[name] = self._numbers.get(name, 0) + 1
        envelope = Envelope(
            service=service,
            name=PodName(name),
            incarnation=life,
            number=self._numbers[name],
            time_s=time.time(),
            event=event,
        )
        self.loop.call(self.bus.log.append(envelope))

    def start(self, module: str, settings: ProcessSettings, log: str) -> subprocess.Popen[bytes]:
        """Start a service; ``log`` is where it writes its last words."""
        with (self._folder / log).open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", module], env=os.environ | to_environment(settings), stderr=file
            )
        self._processes.append(process)
        return process

    def master(self, log: str, *, return_deliveries: bool = True) -> subprocess.Popen[bytes]:
        """Start a master."""
        settings = MasterSettings(
            nats_url=self.url, job=self.spec.job, pod=PodName("master"), return_deliveries=return_deliveries
        )
        return self.start("elasticdl.master.main", settings, log)

    def ps(self, log: str) -> subprocess.Popen[bytes]:
        """Start a life of the ps."""
        settings = PsSettings(nats_url=self.url, job=self.spec.job, pod=PodName("ps-0"), token="secret")
        return self.start("elasticdl.ps.main", settings, log)

    def text(self, log: str) -> str:
        """What a process has written."""
        return (self._folder / log).read_text()

    def await_record(self, is_it: Callable[[LogRecord], bool]) -> LogRecord:
        """Wait for a record of the log."""

        async def read() -> LogRecord:
            async for record in self.bus.log.read(0):
                if is_it(record):
                    return record
            raise AssertionError("the log ended")

        return self.loop.call(asyncio.wait_for(read(), DEADLINE_S))

    def await_event(self, kind: type[Event], count: int = 1) -> None:
        """Wait until so many records of a kind are there."""
        seen: set[int] = set()

        def enough(record: LogRecord) -> bool:
            seen.update([record.seq] if isinstance(record.envelope.event, kind) else [])
            return len(seen) == count

        self.await_record(enough)

    def close(self) -> None:
        """End everything."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.loop.call(self.bus.close())
        self.loop.stop()
        self._server.stop()


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[Surroundings]:
    surroundings = Surroundings(tmp_path)
    yield surroundings
    surroundings.close()


# --- thawed beside a successor, as where nobody can kill it: a node that was cut off ---------------------------------


def test_a_thawed_master_ends_and_says_why(surroundings: Surroundings) -> None:
    first = surroundings.master("first.log")
    surroundings.await_event(events.TermStarted)
    first.send_signal(signal.SIGSTOP)
    second = surroundings.master("second.log")
    surroundings.await_event(events.TermStarted, 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(DEADLINE_S) == EXIT_AWAY
    assert '"event": "another master has taken over"' in surroundings.text("first.log")
    assert second.poll() is None
    assert "taken over" not in surroundings.text("second.log")


def test_a_thawed_ps_ends_and_says_why(surroundings: Surroundings) -> None:
    first = surroundings.ps("first.log")
    surroundings.await_event(events.PsStarted)
    first.send_signal(signal.SIGSTOP)
    second = surroundings.ps("second.log")
    surroundings.await_event(events.PsStarted, 2)
    first.send_signal(signal.SIGCONT)
    assert first.wait(DEADLINE_S) == 0
    assert '"event": "another life of this ps has taken over"' in surroundings.text("first.log")
    second.terminate()
    assert second.wait(DEADLINE_S) == 0
    assert "taken over" not in surroundings.text("second.log")


# --- the lease alone brings a dead worker's task back ----------------------------------------------------------------


PODS: tuple[tuple[Service, str, Event], ...] = (
    (Service.PS, "ps-0", events.PsStarted(address="127.0.0.1:1")),
    (Service.WORKER, "worker-0", events.WorkerStarted()),
    (Service.WORKER, "worker-1", events.WorkerStarted()),
)


class Workers:
    """Two workers: the first takes a task and dies with it, the second takes what there is."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.dead, self.alive = surroundings.connect(), surroundings.connect()
        self._obeyed: list[Command] = []

    async def obey(self, command: Command, cause: str) -> None:
        """The launcher does nothing: the test says what happens."""
        self._obeyed.append(command)

    def begin(self) -> Delivery:
        """The job is under way; the first worker has its first task in hand, the second has done all others."""
        around = self._surroundings
        around.loop.call(around.bus.signals.serve_orders(PodName("launcher"), self.obey))
        around.await_event(Decided)
        for pid, (service, name, ready) in enumerate(PODS):
            around.say(events.PodStarted(pod=PodName(name), service=service, pid=pid), Service.LAUNCHER, "launcher")
            around.say(ready, service, name)
        held = self.take(self.dead)
        around.say(
            events.TaskTaken(task=held.task.task, dispatch=held.task.dispatch, attempt=1, reply=held.reply),
            Service.WORKER,
            "worker-0",
        )
        for _ in range(self._surroundings.spec.plan.tasks - 1):
            around.loop.call(self.take(self.alive).ack())
        return held

    def take(self, bus: NatsBus) -> Delivery:
        """The next task, however long it takes to come."""

        async def take() -> Delivery:
            async with asyncio.timeout(DEADLINE_S):
                while (delivery := await bus.tasks.take(TRAIN)) is None:
                    await bus.tasks.wait(0.5)
                return delivery

        return self._surroundings.loop.call(take())

    def is_nothing_there(self) -> bool:
        """Whether the queue has nothing to give now."""
        return self._surroundings.loop.call(self.alive.tasks.take(TRAIN)) is None

    def die(self) -> None:
        """The launcher says that the first worker is dead."""
        exited = events.PodExited(
            pod=PodName("worker-0"), service=Service.WORKER, pid=1, cause=ExitCause.OUTSIDE, exit_code=-9
        )
        self._surroundings.say(exited, Service.LAUNCHER, "launcher")

    def close(self) -> None:
        """Hang up."""
        for bus in (self.dead, self.alive):
            self._surroundings.loop.call(bus.close())


@pytest.fixture
def workers(surroundings: Surroundings) -> Iterator[Workers]:
    workers = Workers(surroundings)
    yield workers
    workers.close()


def await_return(surroundings: Surroundings) -> None:
    """Wait until the master has decided to give the delivery back, and has run that decision."""

    def returns(record: LogRecord) -> bool:
        event = record.envelope.event
        return isinstance(event, Decided) and any(isinstance(command, ReturnDelivery) for command in event.commands)

    decided = surroundings.await_record(returns)

    def ran(record: LogRecord) -> bool:
        event = record.envelope.event
        return isinstance(event, CommandsRan) and event.up_to >= decided.seq

    surroundings.await_record(ran)


def test_a_dead_workers_task_comes_back_at_once(surroundings: Surroundings, workers: Workers) -> None:
    surroundings.master("master.log")
    held = workers.begin()
    workers.die()
    await_return(surroundings)
    again = surroundings.loop.call(workers.alive.tasks.take(TRAIN))
    assert again is not None
    assert (again.task, again.attempt) == (held.task, 2)


def test_with_the_masters_returns_switched_off_the_lease_brings_it_back(
    surroundings: Surroundings, workers: Workers
) -> None:
    surroundings.master("master.log", return_deliveries=False)
    held = workers.begin()
    workers.die()
    await_return(surroundings)
    assert workers.is_nothing_there()
    again = workers.take(workers.alive)
    assert (again.task, again.attempt) == (held.task, 2)


def test_without_a_master_the_lease_brings_it_back(surroundings: Surroundings, workers: Workers) -> None:
    master = surroundings.master("master.log")
    held = workers.begin()
    master.kill()
    master.wait()
    workers.die()
    assert workers.is_nothing_there()
    again = workers.take(workers.alive)
    assert (again.task, again.attempt) == (held.task, 2)
