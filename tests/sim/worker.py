"""A worker on the virtual clock: the real pipeline, leases and ps rules, with a shell that awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tests.sim.bus import SimDelivery
from tests.sim.job import LEASE_S, ROWS, rows_of
from tests.sim.links import drive, ps_calls, pull_replies
from tests.sim.process import Process

from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import (
    RunningBatch,
    TaskFinished,
    TaskReturned,
    TaskTaken,
    WorkerStarted,
    WorkerStopped,
)
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.model.placement import Placement, decode_placement
from elasticdl.shared.names import PodName, Purpose, Service, TaskId, pod_name
from elasticdl.worker.ps_client.requests import Absorbed, PushRequest, TaskProgress
from elasticdl.worker.ps_client.rules import PinLostError
from elasticdl.worker.training.leased_tasks import HeldTasks, train_task
from elasticdl.worker.training.leases import Leases
from elasticdl.worker.training.pipeline import Progress, Ticket

if TYPE_CHECKING:
    from tests.sim.world import World

PURPOSES = (Purpose.MERGE, Purpose.EVALUATE, Purpose.EXPORT, Purpose.TRAIN)
IDLE_POLL_S = 1.0
PATIENCE_S = 0.2
RETURN_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that is read."""

    ticket: Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A task of another purpose."""

    delivery: SimDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """A task that was absorbed already."""

    task: TaskId
    standing: TaskProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Dry:
    """The queue is empty."""


Item = Prepared | Aside | Complete | Dry


class _Handed:
    """A delivery as ``Leases`` and ``HeldTasks`` know it."""

    def __init__(self, delivery: SimDelivery) -> None:
        self.delivery = delivery
        self.message = delivery.task
        self.attempt = delivery.attempt
        self.reply = delivery.reply

    def ack(self) -> None:
        raise NotImplementedError("awaited, see WorkerProcess")

    def nak(self) -> None:
        raise NotImplementedError("awaited, see WorkerProcess")

    def extend(self) -> None:
        self.delivery.say_extend()


class WorkerProcess(Process):
    """One life of one worker; follows ``Worker``, ``Preparer``, ``Puller``, ``Trainer`` and ``OtherTasks``."""

    service = Service.WORKER

    def __init__(self, world: World, name: PodName) -> None:
        super().__init__(world, name)
        self.places: dict[PodName, PsRegister] = {}
        self.running_batches: tuple[RunningBatch, ...] = ()
        limits = world.job.spec.limits
        leases = Leases(lease_s=LEASE_S, batch_deadline_s=limits.batch_deadline_s, clock=world.clock)
        self._leases = leases
        self._held = HeldTasks(leases)
        self.placement = Placement.even(world.job.spec.ps)
        self._ps = ps_calls(self)
        self._items: asyncio.Queue[Item] = asyncio.Queue(maxsize=1)
        self._stop = asyncio.Event()
        self._known = asyncio.Event()
        self._computed: dict[TaskId, RangeSet] = {}
        self._dry = False

    def terminate(self) -> None:
        if not self._stop.is_set():
            self.spawn(self._ask_to_stop)

    async def _ask_to_stop(self) -> None:
        self._stop.set()

    async def main(self) -> None:
        self.spawn(self._follow_registers)
        self.spawn(self.beat)
        await self._unless_stopped(self._known.wait())
        if not self._stop.is_set():
            await self._unless_stopped(drive(self, self._ps.initialise(self.world.job.initial)))
        if not self._stop.is_set():
            await self.say(WorkerStarted())
            self.spawn(self._keep_leases)
            self.spawn(self._read)
            await self._unless_stopped(self._train())
        await self._give_back(self._held.give_away_all(), "SIGTERM")
        await self.say(WorkerStopped(reason="SIGTERM"))

    async def _unless_stopped(self, coroutine: object) -> None:
        """The product's threads look at the stop between two steps; a step that hangs is abandoned after a grace."""
        task = asyncio.ensure_future(coroutine)  # type: ignore[call-overload]
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=1.0)
        stop.cancel()
        if task.done():
            task.result()
        else:
            task.cancel()

    async def _follow_registers(self) -> None:
        async for name, entry in self.bus.registers.watch():
            if name == PLACEMENT:
                self.placement = decode_placement(entry.value)
            else:
                self.places[PodName(name)] = decode_register(entry.value)
            if all(pod_name(Service.PS, number) in self.places for number in self.placement.holders):
                self._known.set()

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._leases.interval_s)
            self._leases.extend()

    # --- the reader thread ----------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self._stop.is_set():
            item = await self._next()
            if item is not None:
                await self._items.put(item)

    async def _next(self) -> Item | None:
        ticket = self._held.take_ticket()
        if ticket is not None:
            self._dry = False
            return Prepared(ticket=ticket)
        delivery = await self._take(IDLE_POLL_S if self._dry else PATIENCE_S)
        if delivery is not None:
            if self._stop.is_set():
                await delivery.nak()
                return None
            self._dry = False
            return await self._begin(delivery)
        if self._dry:
            return None
        self._dry = True
        return Dry()

    async def _take(self, wait_s: float) -> SimDelivery | None:
        tasks = self.bus.tasks
        try:
            delivery = await tasks.take(PURPOSES)
            if delivery is None:
                await tasks.wait(wait_s)
                delivery = await tasks.take(PURPOSES)
        except TransientError:
            return None
        return delivery

    async def _begin(self, delivery: SimDelivery) -> Item | None:
        message = delivery.task
        await self.say(
            TaskTaken(task=message.task, dispatch=message.dispatch, attempt=delivery.attempt, reply=delivery.reply),
            cause=message.message_id,
        )
        known = self._held.hold(_Handed(delivery))
        if known or message.task.purpose is not Purpose.TRAIN:
            return None if known else Aside(delivery=delivery)
        task = TaskId(message.task.number)
        batches = self.world.job.plan.batches_of(task)
        standing = await drive(self, self._ps.next_batch(task, batches))
        if self._held.begin(task, batches=batches, next_batch=standing.next_batch):
            return None
        return Complete(task=task, standing=standing)

    # --- the main thread ------------------------------------------------------------------------------------------

    async def _train(self) -> None:
        hand: Ticket | None = None
        while not self._stop.is_set():
            if hand is not None and not self._held.is_valid(hand):
                hand = None
            errands: list[Item] = []
            turn = asyncio.ensure_future(self._turn(hand is None, errands))
            push = await self._compute(hand) if hand is not None else None
            arrival = await turn
            if hand is not None and push is not None:
                await self._push(hand, push)
            for errand in errands:
                await self._do(errand)
            hand = arrival

    async def _turn(self, idle: bool, errands: list[Item]) -> Ticket | None:
        """The pull thread's turn."""
        while True:
            item = await self._items.get()
            match item:
                case Prepared(ticket=ticket):
                    if self._held.is_valid(ticket):
                        number = self.world.job.numbers[ticket.task, ticket.batch]
                        if not self.world.job.is_empty(number):
                            await drive(self, self._ps.pull({"rows": rows_of(number)[0]}))
                        return ticket
                case Dry():
                    if not idle or errands:
                        return None
                case _:
                    errands.append(item)
                    if idle:
                        return None

    async def _compute(self, ticket: Ticket) -> PushRequest:
        self.running_batches = (RunningBatch(task=train_task(ticket.task), batch=ticket.batch),)
        await asyncio.sleep(self.world.job.shape.compute_s * (0.5 + self.world.random.random()))
        self.world.computed += 1
        self._computed.setdefault(ticket.task, RangeSet()).add(ticket.batch)
        return self.world.job.push(ticket.task, ticket.batch)

    async def _push(self, ticket: Ticket, push: PushRequest) -> None:
        outcome = await drive(self, self._ps.push(push))
        self.probe("pushed")
        self._leases.progress()
        self.running_batches = ()
        progress, deliveries = self._held.answered(ticket, outcome.next_batch)
        if progress is Progress.FINISHED:
            await self._finish(deliveries, absorbed=outcome)

    async def _do(self, errand: Item) -> None:
        match errand:
            case Complete(task=task, standing=standing):
                await self._finish(self._held.give_away(train_task(task)), absorbed=standing)
            case Aside(delivery=delivery):
                await self._aside(delivery)
                self._leases.progress()

    async def _finish(
        self,
        deliveries: Sequence[object],
        *,
        absorbed: Absorbed | None = None,
        results: Mapping[str, float] | None = None,
        states: Mapping[str, tuple[bytes, ...]] | None = None,
    ) -> None:
        """The event first, then the acknowledgement: see ``Answers``."""
        handed = [each for each in deliveries if isinstance(each, _Handed)]
        for delivery in handed[-1:]:
            task = delivery.message.task
            train = task.purpose is Purpose.TRAIN
            counted = self._computed.pop(TaskId(task.number), RangeSet()) if train else RangeSet()
            event = TaskFinished(
                task=task,
                dispatch=delivery.message.dispatch,
                attempt=delivery.attempt,
                credits={str(ps): str(life) for ps, life in absorbed.credits.items()} if absorbed else {},
                placement_version=absorbed.placement_version if absorbed else 1,
                batches=len(counted) if train else 1,
                results=results or {},
                states=states or {},
                counted=tuple(counted.ranges()),
            )
            await self.say(event, cause=delivery.message.message_id)
        for delivery in handed:
            await delivery.delivery.ack()

    async def _give_back(self, deliveries: Sequence[object], reason: str) -> None:
        for delivery in [each for each in deliveries if isinstance(each, _Handed)]:
            await self._say_returned(delivery, reason)
            await delivery.delivery.nak()

    async def _drop(self, deliveries: Sequence[object], reason: str) -> None:
        for delivery in [each for each in deliveries if isinstance(each, _Handed)]:
            await self._say_returned(delivery, reason)
            await delivery.delivery.ack()

    async def _say_returned(self, delivery: _Handed, reason: str) -> None:
        message, counted = delivery.message, RangeSet()
        if message.task.purpose is Purpose.TRAIN:
            counted = self._computed.pop(TaskId(message.task.number), RangeSet())
        await self.say(
            TaskReturned(
                task=message.task,
                dispatch=message.dispatch,
                attempt=delivery.attempt,
                reason=reason,
                counted=tuple(counted.ranges()),
            )
        )

    # --- other purposes -------------------------------------------------------------------------------------------

    async def _aside(self, delivery: SimDelivery) -> None:
        message = delivery.task
        self._leases.progress()
        try:
            match message.task.purpose:
                case Purpose.EVALUATE:
                    await self._evaluate(message.task, message.evaluation)
                case Purpose.MERGE:
                    await self._finish(self._held.give_away(message.task), results={"loss": 1.0})
                case _:
                    await self._export(message.task)
        except PinLostError:
            await self._drop(self._held.give_away(message.task), f"evaluation {message.evaluation} is over")

    async def _evaluate(self, task: TaskRef, evaluation: int) -> None:
        plan = self.world.job.spec.validation
        assert plan is not None
        for _ in range(plan.batches_of(TaskId(task.number % plan.tasks))):
            pulled = pull_replies(await drive(self, self._ps.pull({}, pin=evaluation)))
            self.world.oracle.pinned(evaluation, {ps: reply.dense for ps, reply in pulled.items()})
            await asyncio.sleep(self.world.job.shape.compute_s / 2)
            self._leases.progress()
        one = np.ones(1).tobytes()
        await self._finish(self._held.give_away(task), states={"loss": (one, one)})

    async def _export(self, task: TaskRef) -> None:
        pulled = pull_replies(await drive(self, self._ps.pull({"rows": np.arange(ROWS)})))
        self.world.oracle.exported = {ps: reply.dense.copy() for ps, reply in pulled.items()}
        await self._finish(self._held.give_away(task))
