"""Whole ps services on a broker and a store in memory, with real sockets and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from tests.deadline import DEADLINE_S
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature
from tests.unit.ps.servers import weights

from elasticdl.ps.service import PsIdentity, PsService
from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.bus.memory.log import MemoryEventLog
from elasticdl.shared.bus.reading import read_present, read_spec
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import Command, TakeSnapshot
from elasticdl.shared.messages.events import Envelope, Event, JobSubmitted, SnapshotTaken
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.model.placement import Placement, decode_placement, encode_placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import PodName, Service, new_incarnation
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.storage import ObjectStore
from elasticdl.worker.ps_client import PsAddress, PsClient, PsClientSettings, PsDirectory

E = TypeVar("E")
TOKEN = "token"


class _Service(PsService):
    """A ps that also closes its connection to the broker: a process that has ended takes no orders."""

    def __init__(self, identity: PsIdentity, *, spec: JobSpec, bus: Bus, loop: LoopThread, store: ObjectStore) -> None:
        super().__init__(identity, spec=spec, bus=bus, loop=loop, store=store, clock=SystemClock())
        self._own_bus, self._bus_loop = bus, loop

    def close(self) -> None:
        super().close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection to the broker for good."""
        self._bus_loop.call(self._own_bus.close())


class Job:
    """A job's surroundings; ps are started and ended by hand."""

    def __init__(self, spec: JobSpec, store: ObjectStore) -> None:
        self.spec = spec
        self.store = store
        self.loop = LoopThread()
        self.broker = self.loop.call(self._broker())
        self.bus = self._connect()
        self._services: list[PsService] = []
        self._clients: list[PsClient] = []
        self.loop.call(
            self.bus.log.append(
                Envelope(
                    service=Service.CLIENT,
                    name=PodName("client"),
                    incarnation=new_incarnation(),
                    number=1,
                    time_s=0.0,
                    event=JobSubmitted(spec=spec),
                )
            )
        )

    def start(self, number: int = 0) -> PsService:
        service = self.make(number)
        service.start()
        return service

    def make(self, number: int = 0, *, log: type[MemoryEventLog] = MemoryEventLog) -> _Service:
        bus = self._connect()
        bus.log = log(bus.log._client, bus.log._records, bus.log._payloads)
        service = _Service(
            PsIdentity(
                ps=PodName(f"ps-{number}"), incarnation=new_incarnation(), token=TOKEN, heartbeat_interval_s=0.01
            ),
            spec=self.loop.call(read_spec(bus.log)),
            bus=bus,
            loop=self.loop,
            store=self.store,
        )
        self._services.append(service)
        return service

    def client(self, model: ModelSignature, *, of_replica: bool = False) -> PsClient:
        def placement() -> Placement:
            return self.placement().of_replica if of_replica else self.placement()

        client = PsClient(
            PsDirectory(placement=placement, resolve=self._resolve),
            token=TOKEN,
            peer="test",
            plan=self.spec.plan.fingerprint,
            signature=model,
            settings=PsClientSettings(unavailable_s=DEADLINE_S),
        )
        self._clients.append(client)
        return client

    def placement(self) -> Placement:
        entry = self.loop.call(self.bus.registers.read(PLACEMENT))
        return decode_placement(entry.value) if entry else Placement.first_of(self.spec)

    def publish(self, placement: Placement) -> None:
        entry = self.loop.call(self.bus.registers.read(PLACEMENT))
        value = encode_placement(placement)
        self.loop.call(self.bus.registers.write(PLACEMENT, value, after=entry.seq if entry else 0))

    def register(self, number: int = 0) -> PsRegister:
        entry = self.loop.call(self.bus.registers.read(PodName(f"ps-{number}")))
        assert entry is not None
        return decode_register(entry.value)

    def order(self, command: Command, number: int = 0) -> None:
        self.loop.call(self.bus.signals.order(PodName(f"ps-{number}"), command, "test"))

    def order_again(self, command: Command, number: int = 0) -> None:
        """Order as the master does: again while the ps has not heard of the placement that the command assumes."""
        while True:
            try:
                self.order(command, number)
            except PermanentError as error:
                if "not known here yet" not in str(error):
                    raise
            else:
                return

    def await_event(self, kind: type[E], count: int = 1, *, where: Callable[[E], bool] = lambda event: True) -> E:
        """The ``count``-th event of a kind on the log that is wanted, waiting for it."""

        async def read() -> E:
            found = 0
            async for record in self.bus.log.read(after=0):
                event: Event = record.envelope.event
                if isinstance(event, kind) and where(event):
                    found += 1
                    if found == count:
                        return event
            raise AssertionError("the log ended")

        return self.loop.call(asyncio.wait_for(read(), DEADLINE_S))

    def log(self) -> list[Envelope]:
        """Everything on the log now."""
        return [record.envelope for record in self.loop.call(read_present(self.bus.log))]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for service in self._services:
            service.close()
        self.loop.stop()

    def _connect(self) -> MemoryBus:
        async def connect() -> MemoryBus:
            return self.broker.connect()

        return self.loop.call(connect())

    async def _broker(self) -> MemoryBroker:
        return MemoryBroker()

    def _resolve(self) -> Mapping[PodName, PsAddress]:
        found = {}
        for number in range(4):
            name = PodName(f"ps-{number}")
            entry = self.loop.call(self.bus.registers.read(name))
            if entry is not None:
                register = decode_register(entry.value)
                found[name] = PsAddress(address=register.address, incarnation=register.incarnation)
        return found


def snapshot(job: Job, request: int, *, flush: bool = False, number: int = 0) -> SnapshotTaken:
    """Order a snapshot and wait for it."""
    ps = PodName(f"ps-{number}")
    job.order(TakeSnapshot(ps=ps, request=request, reason="test", flush=flush), number)
    return job.await_event(SnapshotTaken, where=lambda taken: taken.request == request and f"/{ps}/" in taken.manifest)


def die(service: PsService) -> None:
    """As a SIGKILL would: nothing is saved, nothing is said."""
    service.close()


def equal(one: PsClient, other: PsClient) -> None:
    for mine, theirs in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def untouched_reference(make_job: Callable[..., Job], of: JobSpec, batches: int, optimizer: str = "adam") -> PsClient:
    job = make_job(of)
    job.start()
    client = job.client(signature(optimizer))
    client.initialise(initial_dense())
    for task, batch in BATCHES[:batches]:
        client.push(push_of(task, batch))
    return client
