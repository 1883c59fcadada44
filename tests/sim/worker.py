"""A worker on the virtual clock: the shipped core, the shipped ps client and the shipped queue code.

Simulated are only the commands' executors: how long a read or a step takes, and numbers in place of TensorFlow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.sim.job import LEASE_S, ROWS, rows_of
from tests.sim.links import drive, ps_calls, pull_replies
from tests.sim.metrics import SimMetrics
from tests.sim.predictor import SimPredictor
from tests.sim.process import Process
from tests.sim.runner import SimRunner

from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import ElasticDLError, InvariantError, TransientError
from elasticdl.shared.messages.events import ModelBuilt, RunningBatch
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.model.placement import PARTITIONS, Placement, decode_placement
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service, TaskId, pod_name
from elasticdl.shared.process.exit_codes import EXIT_HUNG
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.wire.messages import Floats
from elasticdl.worker.core import BatchRef, CoreSettings, PipelineSettings, WorkerCore, commands, events
from elasticdl.worker.core.batch_clock import Activity, BatchClock, Work
from elasticdl.worker.core.commands import Command
from elasticdl.worker.execution.broker_lane import (
    PURPOSES,
    PURPOSES_OF_PREDICTION,
    Deliveries,
)
from elasticdl.worker.promotion import Promotion
from elasticdl.worker.ps_client.calls import Settled
from elasticdl.worker.ps_client.requests import PinLostError, PullDelayedError, PushOutcome

if TYPE_CHECKING:
    from tests.sim.world import World

LEASE_DEADLINE_S = 30.0
PULL_POLL_S = 0.02
STOP_LIMIT_S = 1.8
UNREADABLE = 0.005
"""Share of reads that fail while faults are on, because storage does not answer."""


class Hang(Enum):
    """How a step of a worker never ends."""

    USER_CODE = "user_code"
    WAITING = "waiting"
    """It waits for something that will not happen, such as an answer that was lost: a bug of ours."""


@dataclass(slots=True)
class Weights:
    """What was pulled for a batch: the receive buffers and whether they were returned."""

    settled: Settled
    is_released: bool = False


class WorkerProcess(Process):
    """One instance of a worker."""

    service = Service.WORKER

    def __init__(self, world: World, name: PodName, run: Incarnation) -> None:
        super().__init__(world, name, run)
        self.places: dict[PodName, PsRegister] = {}
        self.placement = Placement.even(world.job.spec.ps)
        self.running_batches: tuple[RunningBatch, ...] = ()
        self.hangs: Hang | None = None
        """How the next step never ends; None: it ends."""
        self._activities: list[Activity] = []
        self._watchdog = BatchClock(world.job.spec.limits.batch_deadline_s)
        staleness = int(world.random.random() < 0.4)
        spec = replace(world.job.spec, prefetch_batches=1 + int(3 * world.random.random()))
        self.pipeline = PipelineSettings.of(spec, staleness=staleness)
        self._core = WorkerCore(
            CoreSettings(
                plan=spec.plan,
                validation=spec.validation,
                pipeline=self.pipeline,
                rounds=spec.rounds,
                pull_poll_s=PULL_POLL_S,
                lease_s=LEASE_S,
                lease_deadline_s=LEASE_DEADLINE_S,
                patience_s=0.2,
            )
        )
        self._runner: SimRunner[events.Event, Command] = SimRunner(
            self, self._core, execute=self._execute, lane_of=commands.lane_of
        )
        self.ps = ps_calls(self)
        self._predictor = SimPredictor(self) if spec.prediction else None
        self._deliveries = Deliveries(
            self.bus.tasks, PURPOSES_OF_PREDICTION if spec.prediction else PURPOSES, spec.has_task
        )
        self._known = asyncio.Event()
        self._weights: dict[BatchRef, Weights] = {}
        self._metrics = SimMetrics(self)
        self._pushed: list[tuple[int, PushOutcome]] = []
        """Number and outcome of the last pushes."""
        self._handlers: Mapping[type, Callable[[Any], Awaitable[Any]]] = {
            commands.InitialiseModel: self._initialise,
            commands.AskProgress: self._ask_progress,
            commands.ReadEpochMetrics: self._read_metrics,
            commands.PublishEvent: lambda command: self.say(command.event),
            commands.PublishEvents: self._say_all,
            commands.TakeTasks: self._take,
            commands.AckTask: lambda command: self._answer(self._deliveries.ack(command.lease)),
            commands.NakTask: lambda command: self._answer(self._deliveries.nak(command.lease)),
            commands.ExtendLease: lambda command: self._deliveries.extend(command.lease),
            commands.ReadBatch: self._read,
            commands.PullBatch: self._pull,
            commands.ComputeBatch: self._compute,
            commands.PushBatch: self._push,
            commands.EvaluateBatch: self._evaluate,
            commands.ReleaseBatch: self._release,
            commands.RunCallbacks: self._run_callbacks,
            commands.ExportModel: self._export,
            commands.SaveModel: self._save,
            commands.Exit: self._exit,
            **self._metrics.handlers,
            **(self._predictor.handlers if self._predictor else {}),
        }

    def terminate(self) -> None:
        self._runner.post(events.StopRequested(reason="SIGTERM"))
        self.world.loop.call_later(STOP_LIMIT_S, self.end, 0, context=self.instance.context)

    async def main(self) -> None:
        self.spawn(self._follow_registers)
        self.spawn(self.heartbeat)
        self.spawn(self._watch)
        if self.world.job.spec.spare_workers:
            await self.bus.signals.serve_orders(self.name, Promotion(self.incarnation, self._begin).take_order)
            await self.say(ModelBuilt())
        else:
            await self._begin()
        await self.world.loop.create_future()

    async def _begin(self) -> None:
        self.probe("begins")
        self._runner.post(events.Started())

    async def _watch(self) -> None:
        """As ``Watchdog``."""
        while True:
            await asyncio.sleep(self._watchdog.tick_s)
            tick = self._watchdog.tick(self.clock.monotonic(), self._activities)
            if tick.overdue:
                self.running_batches = tuple(activity.batch for activity in tick.overdue if activity.batch)
                self.end(EXIT_HUNG)
                return
            told = [*((activity, 0.0) for activity in tick.continued), *tick.slow]
            for activity, seconds in told:
                assert activity.batch
                task, batch = activity.batch.task, activity.batch.batch
                slow = BatchSlow(task=task, batch=batch, work=str(activity), seconds=seconds)
                self._runner.post(events.SlowBatchSeen(event=slow))

    async def _follow_registers(self) -> None:
        async for name, entry in self.bus.registers.watch():
            if name == PLACEMENT:
                self.placement = decode_placement(entry.value)
            else:
                self.places[PodName(name)] = decode_register(entry.value)
            if not self._known.is_set() and all(
                pod_name(Service.PS, number) in self.places for number in self.placement.holders
            ):
                self._known.set()

    async def _execute(self, command: Command) -> events.Event | None:
        """As ``Executor.execute``."""
        try:
            if isinstance(command, Issued):
                result = await self._handlers[type(command.command)](command.command)
                return events.CommandDone(number=command.number, result=result)
            event: events.Event | None = await self._handlers[type(command)](command)
        except InvariantError:
            raise
        except ElasticDLError as error:
            if isinstance(command, Issued):
                return events.CommandFailed(number=command.number, error=error)
            return events.ExecutionFailed(error=error)
        return event

    # --- broker ---------------------------------------------------------------------------------------------------

    async def _take(self, command: commands.TakeTasks) -> events.Event:
        try:
            taken = await self._deliveries.take(command.wait_s, command.count)
        except TransientError:
            return events.QueueEmpty(is_unavailable=True)
        for message in self._deliveries.unreadable():
            await self.say(message)
        return taken

    @staticmethod
    async def _answer(answer: Awaitable[None]) -> None:
        with suppress(TransientError):  # The lease expires.
            await answer

    async def _exit(self, command: commands.Exit) -> None:
        self.end(command.exit_code)

    # --- ps -------------------------------------------------------------------------------------------------------

    async def _initialise(self, _: commands.InitialiseModel) -> None:
        await self._known.wait()
        await drive(self, self.ps.initialise(self.world.job.initial))
        if not self.world.job.spec.kind.trains:
            await drive(self, self.ps.pull({}, dense=False))

    async def _ask_progress(self, command: commands.AskProgress) -> object:
        return await drive(self, self.ps.next_batch(command.task, command.batches))

    async def _read_metrics(self, command: commands.ReadEpochMetrics) -> object:
        self.probe("metrics")
        self.world.metric_oracle.reads(command.epoch)
        return await drive(self, self.ps.read_metrics(command.epoch, command.skipped))

    async def _pull(self, command: commands.PullBatch) -> events.Event:
        if self._predictor:
            return await self._predictor.pull(command, self._ids(command.ref))
        try:
            batch = None if command.pin else (command.ref.task.number, command.ref.batch)
            settled = await drive(self, self.ps.pull(self._ids(command.ref), pin=command.pin, batch=batch))
        except PinLostError:
            return events.PinLost(ref=command.ref)
        except PullDelayedError:
            return events.PullDelayed(ref=command.ref)
        self._weights[command.ref] = Weights(settled)
        return events.BatchPulled(ref=command.ref)

    async def _push(self, command: commands.PushBatch) -> events.Event:
        ref, following = command.ref, command.pull
        weights = self._weights.get(ref)
        iterations = weights.settled.iterations() if weights else {}
        push = self.world.job.push(TaskId(ref.task.number), ref.batch, iterations)
        if following is None:
            outcome = await drive(self, self.ps.push(push))
        else:
            outcome, settled, _ = await drive(
                self, self.ps.push_and_pull(push, self._ids(following), (following.task.number, following.batch))
            )
            if settled is not None:
                self._weights[following] = Weights(settled)
        if weights is not None:
            key = (ref.task.number, ref.batch)
            problem = self.world.staleness.problem(key, outcome, weights.settled.sent.splitter.version)
            if problem:
                raise InvariantError(problem)
        self.probe("pushed")
        self.running_batches = ()
        if outcome.next_batch == ref.batch + 1 and push.dense_gradient is not None:
            self._pushed = [*self._pushed[-1:], (self._number(ref), outcome)]
        return events.BatchPushed(ref=ref, outcome=outcome, has_pulled=following in self._weights)

    async def _release(self, command: commands.ReleaseBatch) -> None:
        weights = self._weights.pop(command.ref, None)
        if weights is not None:
            weights.is_released = True
        if self._predictor:
            self._predictor.release(command.ref)

    def _ids(self, ref: BatchRef) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
        match ref.task.purpose:
            case Purpose.TRAIN:
                return {"rows": rows_of(self._number(ref))[0]}
            case Purpose.PREDICT:
                return {"rows": rows_of(ref.task.number + ref.batch)[0]}
            case _:
                return {"rows": np.arange(ROWS)} if self.world.job.shape.catches_up else {}

    def _number(self, ref: BatchRef) -> int:
        return self.world.job.numbers[TaskId(ref.task.number), ref.batch]

    # --- input and model ------------------------------------------------------------------------------------------

    async def _read(self, command: commands.ReadBatch) -> events.Event:
        ref, world = command.ref, self.world
        await asyncio.sleep(0.1 * world.job.shape.compute_s * world.random.random())
        if not world.network.calm and world.random.random() < UNREADABLE:
            return events.BatchUnreadable(ref=ref, reason="storage is unavailable")
        job = world.job
        if ref.task.purpose is not Purpose.TRAIN:
            task = TaskId(ref.task.number % job.validation.tasks)
            records, checksum = job.validation.records_of(task, ref.batch), job.evaluation_checksum(task, ref.batch)
            return events.BatchRead(ref=ref, records=records, checksum=checksum)
        return events.BatchRead(ref=ref, records=1, is_empty=job.is_empty(self._number(ref)))

    async def _compute(self, command: commands.ComputeBatch) -> events.Event:
        ref, world = command.ref, self.world
        weights = self._weights.get(ref)
        if weights is not None:
            self._check_freshness(ref, weights)
        self.running_batches = (RunningBatch(task=ref.task, batch=ref.batch),)
        await self.step(ref, Work.TRAIN, world.job.shape.compute_s * (0.5 + world.random.random()), weights)
        world.computed += 1
        return events.BatchComputed(ref=ref, loss=0.0 if weights is not None else None)

    async def _evaluate(self, command: commands.EvaluateBatch) -> events.Event:
        weights = self._weights[command.ref]
        pin = weights.settled.sent.parts.requests[0].pin  # type: ignore[union-attr]
        replies = pull_replies(weights.settled)
        self.world.oracle.pinned(pin, {ps: reply.dense for ps, reply in replies.items()})
        self.world.oracle.pinned_rows(pin, {ps: reply.rows for ps, reply in replies.items()})
        task = TaskId(command.ref.task.number % self.world.job.validation.tasks)
        self._metrics.add_evaluated(self.world.job.validation.records_of(task, command.ref.batch))
        await self.step(command.ref, Work.EVALUATE, self.world.job.shape.compute_s / 2, weights)
        return events.BatchComputed(ref=command.ref, loss=0.0)

    async def step(self, ref: BatchRef, work: Work, seconds: float, weights: Weights | None) -> None:
        """A step of the model; the receive buffers may alias its tensors until it ends."""
        activity = Activity(batch=RunningBatch(task=ref.task, batch=ref.batch), work=work, thread=0)
        self._activities.append(activity)
        if ref.task.purpose is Purpose.TRAIN and self._number(ref) == self.world.job.shape.hangs_at:
            self.hangs = Hang.USER_CODE
        if self.hangs:
            activity.waits = self.hangs is Hang.WAITING
            self.world.note(f"a step of {self.incarnation} hangs")
            await self.world.loop.create_future()
        await asyncio.sleep(seconds)
        self._activities.remove(activity)
        if weights is not None and weights.is_released:
            raise InvariantError("receive buffers were returned while a step used them")

    async def _say_all(self, command: commands.PublishEvents) -> None:
        for event in command.events:
            await self.say(event)

    async def _run_callbacks(self, command: commands.RunCallbacks) -> commands.MergeResult:
        """The rate stays that of the optimizer: with it, weights count batches. Hooks of every epoch save the model."""
        done = self.world.callback_results.get(command.number)
        if done is not None:
            return done
        epoch, is_end = command.number // 2, command.number % 2 == 0
        if is_end:
            self.probe("hooks")
            await asyncio.sleep(4 * self.world.job.shape.compute_s)  # Hooks before the one that saves the model.
            settled = await drive(self, self.ps.pull({}, only=command.instances))
            dense = {ps: reply.dense for ps, reply in pull_replies(settled).items()}
            self.world.oracle.checkpoint(epoch - 1, settled.incarnations, dense)
        stops = is_end and epoch >= self.world.job.shape.callback_epochs
        results = {"learning_rate": 1.0} | ({"stop_training": 1.0} if stops else {})
        if stops or (is_end and command.is_last):
            results["ended"] = 1.0
        return self.world.callback_results.setdefault(command.number, commands.MergeResult(results=results))

    async def _save(self, command: commands.SaveModel) -> float:
        settled = await drive(self, self.ps.pull({}, pin=command.pin))
        dense = {ps: reply.dense for ps, reply in pull_replies(settled).items()}
        self.world.oracle.saved(command.pin, dense)
        return 0.0

    async def _export(self, command: commands.ExportModel) -> float:
        if command.version:
            self.world.oracle.exported_version = command.version
            return 0.0
        pulled = pull_replies(await drive(self, self.ps.pull({"rows": np.arange(ROWS)}, only=command.audited)))
        self.world.oracle.exported = {ps: (reply.dense.copy(), reply.rows.copy()) for ps, reply in pulled.items()}
        return 0.0

    def _check_freshness(self, ref: BatchRef, weights: Weights) -> None:
        """The weights contain every earlier batch of this worker, except as many as the staleness allows."""
        sent, shape = weights.settled.sent, self.world.job.shape
        if shape.synchronous:
            self._check_round(ref, weights)
            return
        due = self._pushed[: len(self._pushed) - self.pipeline.staleness]
        if not due or shape.grads_to_wait > 1:
            return
        number, outcome = due[-1]
        if sent.splitter.version < outcome.placement_version:
            raise InvariantError(f"{ref} is computed on weights of an earlier placement than its predecessor's push")
        restored = dict(weights.settled.incarnations) != dict(outcome.credits)
        if restored or sent.splitter.version != outcome.placement_version:
            return
        if not self._counts(weights)[:, number].all():
            raise InvariantError(f"{ref} is computed on weights that lack batch {number} of the same worker")

    def _check_round(self, ref: BatchRef, weights: Weights) -> None:
        """The weights contain every batch of the rounds before."""
        job, rounds = self.world.job, self.world.job.spec.rounds
        assert rounds is not None
        own = rounds.key(TaskId(ref.task.number), ref.batch)[:2]
        due = [
            number
            for (task, batch), number in job.numbers.items()
            if rounds.key(task, batch)[:2] < own and not job.is_empty(number)
        ]
        if not self._counts(weights)[:, due].all():
            raise InvariantError(f"{ref} is computed on weights that lack an earlier round")

    def _counts(self, weights: Weights) -> Floats:
        """How often each batch was learned: float32[partitions, batches]."""
        flat = np.zeros_like(self.world.job.initial)
        replies = pull_replies(weights.settled).values()
        for part, reply in zip(weights.settled.sent.splitter.parts, replies, strict=True):
            part.scatter(reply.dense, flat)
        return flat[: PARTITIONS * len(self.world.job.batches)].reshape(PARTITIONS, -1)
