"""The master's shell on the in-memory broker, with services that answer like the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.master.driver import job_spec, plan

from elasticdl.master.core import State
from elasticdl.master.core.fold import fold
from elasticdl.master.service import Master, MasterOptions
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.bus.reading import read_present
from elasticdl.shared.errors import FencedError
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import Command, JobState
from elasticdl.shared.messages.events import Envelope, Event, GroupLedger, LogRecord
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.names import NOBODY, GroupId, Incarnation, PodInstance, PodName, Purpose, Service, new_incarnation
from elasticdl.shared.pods.memory import MemoryPods
from elasticdl.shared.process.clock import SystemClock

PS = PodName("ps-0")
WORKER = PodName("worker-0")


class EnvelopeFactory:
    """Appends events in the name of a process."""

    def __init__(self, bus: MemoryBus, service: Service, name: str, run: Incarnation = NOBODY) -> None:
        self.run = run
        self.bus, self.service, self.name = bus, service, PodName(name)
        self.incarnation, self._number = new_incarnation(), 0

    async def say(self, event: Event) -> None:
        self._number += 1
        await self.bus.log.append(
            Envelope(
                service=self.service,
                name=self.name,
                incarnation=self.incarnation,
                run=self.run,
                instance=PodInstance(self.name),
                number=self._number,
                time_s=SystemClock().now(),
                event=event,
            )
        )


class Cluster:
    """One launcher, one ps and one worker, as coroutines with a real ledger."""

    def __init__(self, broker: MemoryBroker, training: Plan) -> None:
        self.broker, self.plan, self.ledger = broker, training, Ledger()
        self.launcher = EnvelopeFactory(broker.connect(), Service.LAUNCHER, "launcher")
        run = self.launcher.incarnation
        self.ps = EnvelopeFactory(broker.connect(), Service.PS, PS, run)
        self.worker = EnvelopeFactory(broker.connect(), Service.WORKER, WORKER, run)
        self.may_work = asyncio.Event()
        self.may_work.set()

    async def serve(self) -> None:
        await self.launcher.bus.signals.serve_orders(PodName("launcher"), self._launcher_order)
        await self.ps.bus.signals.serve_orders(PS, self._ps_order)

    async def _launcher_order(self, order: Command, cause: str) -> None:
        if not isinstance(order, commands.StartPod):
            return
        instance = PodInstance(order.pod)
        await self.launcher.say(events.PodStarted(pod=order.pod, service=order.service, instance=instance))
        await self.report_ready(order.service)

    async def report_ready(self, service: Service) -> None:
        if service is Service.PS:
            await self.ps.say(events.PsStarted(address="127.0.0.1:1"))
        else:
            await self.worker.say(events.WorkerStarted())

    async def _ps_order(self, order: Command, cause: str) -> None:
        if isinstance(order, commands.TakeSnapshot):
            await self.ps.say(
                events.SnapshotTaken(
                    manifest="m", request=order.request, ledgers=self.ledgers("m"), size_bytes=1, seconds=0.0
                )
            )

    def ledgers(self, manifest: str) -> tuple[GroupLedger, ...]:
        return (GroupLedger(group=GroupId("g"), ledger=self.ledger.record(), partitions=ALL),)

    async def work(self) -> None:
        tasks = self.worker.bus.tasks
        while True:
            await self.may_work.wait()
            delivery = await tasks.take((Purpose.TRAIN, Purpose.MERGE))
            if delivery is None:
                await tasks.wait(0.05)
                continue
            task = delivery.task.task
            if task.purpose is Purpose.MERGE:
                finished = events.TaskFinished(task=task, dispatch=delivery.task.dispatch, attempt=delivery.attempt)
                await self.worker.say(finished)
                await delivery.ack()
                continue
            batches = self.plan.batches_of(task.number)  # type: ignore[arg-type]
            for batch in range(batches):
                records = self.plan.records_of(task.number, batch)  # type: ignore[arg-type]
                self.ledger.absorb(task.number, batch, batches, records, 0)  # type: ignore[arg-type]
            await self.worker.say(
                events.TaskFinished(
                    task=task,
                    dispatch=delivery.task.dispatch,
                    attempt=delivery.attempt,
                    absorbed_by=ps_set_digest({PS: self.ps.incarnation}),
                    batches=batches,
                    counted=((0, batches),),
                )
            )
            await delivery.ack()


@asynccontextmanager
async def cluster(training: Plan) -> AsyncIterator[Cluster]:
    broker = MemoryBroker()
    services = Cluster(broker, training)
    await services.launcher.say(events.JobSubmitted(spec=job_spec(training, workers=1)))
    await services.serve()
    working = asyncio.create_task(services.work())
    try:
        yield services
    finally:
        working.cancel()


class ClusterNode:
    """Runs the pods that a master creates itself."""

    def __init__(self, services: Cluster) -> None:
        self.pods = MemoryPods(self)
        self._services = services
        self._reports: set[asyncio.Task[None]] = set()

    def start(self, pod: PodName, service: Service) -> None:
        self.pods.run(pod, PodInstance(pod))
        self._reports.add(asyncio.create_task(self._services.report_ready(service)))

    def stop(self, pod: PodName, *, kill: bool) -> None:
        self.pods.exit(pod, -9 if kill else 0)


def master(services: Cluster, incarnation: str = "m1", pods: MemoryPods | None = None) -> Master:
    options = MasterOptions(pods=(lambda run: pods) if pods else None)
    return Master(services.broker.connect(), SystemClock(), Incarnation(incarnation), services.ledgers, options)


async def read_log(services: Cluster) -> list[LogRecord]:
    return await read_present(services.broker.connect().log)


async def check(services: Cluster, final: State) -> None:
    assert final.job_state is JobState.SUCCEEDED
    assert final.closing.audit is not None
    assert final.closing.audit.exact
    assert fold(await read_log(services)) == final


async def test_a_job_from_submission_to_audit() -> None:
    async with cluster(plan(records=5000, epochs=3)) as services:
        await check(services, await master(services).run())


async def test_a_successor_continues_the_job_of_a_killed_master() -> None:
    async with cluster(plan(records=20_000, epochs=2)) as services:
        first = asyncio.create_task(master(services).run())
        while services.ledger.step < 50:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        final = await master(services, "m2").run()
        assert final.term == 2
        await check(services, final)


async def test_masters_that_are_given_pods_create_and_watch_them() -> None:
    """The second one finds the pods of the first one."""
    async with cluster(plan(records=20_000, epochs=2)) as services:
        pods = ClusterNode(services).pods
        first = asyncio.create_task(master(services, pods=pods).run())
        while services.ledger.step < 50:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        final = await master(services, "m2", pods).run()
        await check(services, final)
        starts = [
            record.envelope
            for record in await read_log(services)
            if isinstance(record.envelope.event, events.PodStarted)
        ]
        assert {envelope.service for envelope in starts} == {Service.MASTER}
        assert final.pods[WORKER].starts == final.pods[PS].starts == 1
        assert final.measured is not None
        assert final.measured.ended_s > 0
        assert final.measured.batches_absorbed == final.plan.batches


async def test_an_order_of_a_term_that_the_log_does_not_know_does_not_silence_the_master() -> None:
    async with cluster(plan(records=5000, epochs=1)) as services:
        signals = services.broker.connect().signals
        for pod, term in ((PodName("launcher"), 50), (PS, 90)):
            await signals.order(pod, commands.ClosePin(ps=PS, evaluation=9), "a stranger", term=term)
        final = await master(services).run()
        assert final.term == 91
        await check(services, final)


async def test_a_fenced_master_is_refused() -> None:
    async with cluster(plan(records=20_000, epochs=2)) as services:
        services.may_work.clear()
        first = asyncio.create_task(master(services).run())
        while not any(isinstance(r.envelope.event, events.WorkerStarted) for r in await read_log(services)):
            await asyncio.sleep(0)
        second = asyncio.create_task(master(services, "m2").run())
        while not any(
            isinstance(r.envelope.event, events.TermStarted) and r.envelope.event.term == 2
            for r in await read_log(services)
        ):
            await asyncio.sleep(0)
        services.may_work.set()
        with pytest.raises(FencedError):
            await first
        await check(services, await second)
