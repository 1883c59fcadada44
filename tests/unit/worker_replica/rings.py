"""A ring of workers in one process, on a broker and a store in memory. The test is the master."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.deadline import DEADLINE_S
from tests.unit.ps.example import initial_dense, push_of, signature, spec
from tests.unit.ps.jobs import TOKEN, Job, snapshot

from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.spec import JobSpec, Strategy
from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.messages.events import PsStarted, RingMemberReady, SnapshotTaken
from elasticdl.shared.messages.registers import RingRegister, encode_ring
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, JobId, PodInstance, PodName, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.settings import WorkerSettings
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.worker.ps_client import PsClient, PushRequest
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables
from elasticdl.worker.replica.ring_worker import RingWorker, Surroundings

RUN = Incarnation("run")
COHORT = 3
SPEC: JobSpec = replace(spec("memory://job"), synchronous=True, grads_to_wait=COHORT, strategy=Strategy.ALLREDUCE)


def model() -> ModelSignature:
    return replace(signature("adam"), tables=())


def request_of(task: int, batch: int) -> PushRequest:
    return replace(push_of(task, batch), rows={}, magnitudes={})


class Ring:
    """Workers of a job, as members of generations that a test forms.

    Args:
        ps: processes of ps, which have the tables of the model. Without any it has no tables.
    """

    def __init__(self, ps: int = 0) -> None:
        self.spec, self.ps = replace(SPEC, ps=1 + ps), ps
        self.model = signature("adam") if ps else model()
        self.job = Job(self.spec, MemoryStore())
        self.client: PsClient | DenseAndTables = self.job.client(model(), of_replica=True)
        if ps:
            tables = self.job.client(self.model.without_dense)
            self.client = DenseAndTables(self.model, self.job.client(model(), of_replica=True), tables)
        self.tables = [self.job.start(number) for number in range(1, 1 + ps)]
        self._addresses = {one.address for one in self.tables}
        self.workers: dict[str, RingWorker] = {}
        self.errors: list[BaseException] = []
        self._generation = self._seq = 0

    def start(self, name: str) -> RingWorker:
        """A worker starts, and asks to be a member."""
        clock = SystemClock()
        bus = self.job._connect()
        envelopes = EnvelopeFactory(
            service=Service.WORKER, name=PodName(name), incarnation=Incarnation(name), run=RUN, clock=clock
        )
        around = Surroundings(
            settings=WorkerSettings(nats_url="", job=JobId("example-123456"), pod=PodName(name), token=TOKEN, run=RUN),
            incarnation=Incarnation(name),
            instance=PodInstance(name),
            spec=self.spec,
            bus=bus,
            loop=self.job.loop,
            store=self.job.store,
            clock=clock,
        )
        worker = RingWorker(
            around, self.model, self.client, publisher=EventPublisher(bus.log, envelopes), failed=self.errors.append
        )
        self.workers[name] = worker
        worker.start()
        self.job.await_event(RingMemberReady, where=lambda event: event.address == worker.address)
        return worker

    def form(self, *names: str) -> None:
        """Form the next generation."""
        self._generation += 1
        members = tuple(
            RingMember(worker=PodName(name), incarnation=Incarnation(name), address=self.workers[name].address)
            for name in names
        )
        ring = RingRegister(run=RUN, number=self._generation, members=members)
        registers = self.job.bus.registers
        self._seq = self.job.loop.call(registers.write("ring", encode_ring(ring), after=self._seq))
        self.started(self._generation)

    def started(self, count: int) -> PsStarted:
        """What ps-0 has said when it started for this time."""
        return self.job.await_event(PsStarted, count, where=lambda one: one.address not in self._addresses)

    def snapshot(self) -> SnapshotTaken:
        """Order a snapshot as the master does: again until it is received."""
        give_up_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return snapshot(self.job, 1)
            except TransientError:
                assert time.monotonic() < give_up_s

    def initialise(self) -> None:
        """Give the model its initial weights, as every worker offers them."""
        self.client.initialise(initial_dense())

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers.values():
            worker.close()
        self.job.close()
        assert self.errors == []
