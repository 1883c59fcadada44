"""The simulated launcher, workers and ps: they append the events and answer the orders that real ones would."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.control_plane.connection import Connection

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.tasks import short_reply
from elasticdl.shared.bus.stored_events import to_stored
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import codec, commands, events
from elasticdl.shared.messages.events import Event, GroupLedger
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import (
    LAUNCHER,
    NO_INSTANCE,
    NOBODY,
    GroupId,
    Incarnation,
    JobId,
    PodInstance,
    PodName,
    Purpose,
    Service,
    new_incarnation,
)
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory

JOB = JobId("control-plane-1")
TASKS = 1_000_000
RUN = new_incarnation()
SNAPSHOT_INTERVAL_S = 30.0
POLL_S = 0.05
"""Seconds before a worker that found no task asks again."""


@dataclass(slots=True, kw_only=True)
class Totals:
    """What the clients have done.

    Attributes:
        taken, finished: number of tasks.
    """

    taken: int = 0
    finished: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a simulated process says that it is.

    Attributes:
        service: its kind.
        name: its pod name.
        instance: of its pod.
        run: that its pod belongs to.
        incarnation: of the process.
    """

    service: Service
    name: PodName
    instance: PodInstance = NO_INSTANCE
    run: Incarnation = NOBODY
    incarnation: Incarnation = field(default_factory=new_incarnation)


def job_spec(workers: int, ps: int, job: JobId = JOB) -> JobSpec:
    """A job of a million tasks of one batch of 64 records."""
    source = Source(uri="file:///data/a.csv", size_bytes=1 << 30, etag="1", records=64 * TASKS)
    plan = Plan(sources=(source,), minibatch_size=64, minibatches_per_task=1, epochs=1, shuffle=Shuffle.RECORDS, seed=1)
    return JobSpec(
        job=job,
        created_s=time.time(),
        plan=plan,
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="/models/m.py", symbol="custom_model"),
        storage="memory://storage",
        workers=workers,
        ps=ps,
    )


async def send_heartbeats(processes: Callable[[], Sequence[Process]]) -> None:
    """Send one heartbeat per second of every process, spread over the second."""
    slices = 20
    while True:
        for part in range(slices):
            for process in processes()[part::slices]:
                process.send_heartbeat()
            await asyncio.sleep(1 / slices)


class Process:
    """A simulated process that appends events.

    Args:
        connection: to the broker.
        spec: the job.
        identity: of the process.
        totals: counts tasks.
    """

    def __init__(self, connection: Connection, spec: JobSpec, identity: Identity, totals: Totals) -> None:
        self.connection = connection
        self.spec = spec
        self.name = identity.name
        self.totals = totals
        self.incarnation = identity.incarnation
        self.instance = identity.instance
        self.envelopes = EnvelopeFactory(
            service=identity.service,
            name=identity.name,
            clock=SystemClock(),
            incarnation=identity.incarnation,
            run=identity.run,
            instance=identity.instance,
        )
        self._subject = subjects.event(spec.job, identity.service, identity.name)
        heartbeat = self.envelopes.heartbeat({"rss_bytes": 1e8, "batches": 100.0, "records": 1e5, "progress": 100.0})
        self._heartbeat = (
            subjects.heartbeat(spec.job, identity.service, identity.name),
            codec.encode_heartbeat(heartbeat),
        )

    def append(self, event: Event, then: Callable[[], None] | None = None) -> None:
        """Append an event; ``then`` is called when the broker has stored it."""
        envelope = self.envelopes.envelope(event)

        def stored() -> None:
            self.envelopes.is_declared = True
            if then:
                then()

        self.append_encoded(to_stored(envelope).data, stored)

    def append_encoded(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Append the next envelope as bytes."""

        def stored(_subject: str, _reply: str, _headers: bytes, answer: bytes) -> None:
            if b'"error"' in answer:
                raise RuntimeError(answer.decode())
            if then:
                then()

        header = f"Nats-Msg-Id: {self.incarnation}.{self.envelopes.number}".encode()
        self.connection.request(self._subject, data, stored, headers=header)

    def send_heartbeat(self) -> None:
        """Send a heartbeat; its values do not matter to the master."""
        self.connection.publish(*self._heartbeat)


class Worker(Process):
    """Takes tasks, says so, and says that they are finished.

    Args:
        connection, spec, identity, totals: see ``Process``.
        load: how it works.
    """

    def __init__(self, connection: Connection, spec: JobSpec, identity: Identity, totals: Totals, load: Load) -> None:
        super().__init__(connection, spec, identity, totals)
        self._load = load
        self._stream = subjects.tasks_stream(spec.job)
        self._pull_subject = (
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{subjects.task_consumer(Purpose.TRAIN, again=False)}"
        )
        self._pull = json.dumps({"batch": 1, "no_wait": True}).encode()
        self._inbox = f"_INBOX.pull.{identity.incarnation}"
        self._task: Any = codec.TASK.message()
        connection.subscribe(self._inbox, self._on_task)

    def declare(self) -> None:
        """Report ready."""
        self.append(events.WorkerStarted())

    def start(self, absorbed_by: int) -> None:
        """Begin to take tasks, once every ps is ready.

        Args:
            absorbed_by: digest of the ps that absorb the tasks.
        """
        task = TaskRef(purpose=Purpose.TRAIN, number=0)
        taken = events.TaskTaken(task=task, dispatch=1, attempt=1, reply="")
        self._taken = self._prototype(taken)
        seconds = dict.fromkeys(("read", "feed", "pull", "compute", "push"), 0.0123)
        self._finished = self._prototype(
            events.TaskFinished(
                task=task,
                dispatch=1,
                attempt=1,
                absorbed_by=absorbed_by,
                records=64,
                batches=1,
                loss_sum=0.69,
                times=Times.of(seconds),
                counted=((0, 1),),
                staleness={0: 1},
            )
        )
        self._ask()

    def _prototype(self, event: Event) -> Any:
        message = codec.ENVELOPE.message()
        message.ParseFromString(to_stored(self.envelopes.envelope(event)).data)
        return message

    def _append_prototype(self, message: Any, then: Callable[[], None]) -> None:
        self.envelopes.number += 1
        message.time_s = time.time()
        self.append_encoded(message.SerializeToString(), then)

    def _ask(self) -> None:
        if not self._load.is_over:
            self.connection.publish(self._pull_subject, self._pull, reply=self._inbox)

    def _on_task(self, _subject: str, reply: str, _headers: bytes, data: bytes) -> None:
        if not data:  # There is no task.
            self._load.later(POLL_S, self._ask)
            return
        self._task.ParseFromString(data)
        number, dispatch = self._task.task.number, self._task.dispatch
        taken = self._taken.task_taken
        taken.task.number, taken.dispatch, taken.reply = number, dispatch, short_reply(self._stream, reply)
        self.totals.taken += 1
        self._append_prototype(self._taken, lambda: self._train(number, dispatch, reply))

    def _train(self, number: int, dispatch: int, reply: str) -> None:
        if self._load.task_s:
            self._load.later(
                self._load.task_s * random.uniform(0.5, 1.5), lambda: self._finish(number, dispatch, reply)
            )
        else:
            self._finish(number, dispatch, reply)

    def _finish(self, number: int, dispatch: int, reply: str) -> None:
        finished = self._finished.task_finished
        finished.task.number, finished.dispatch = number, dispatch
        self._append_prototype(self._finished, lambda: self._acknowledge(reply))

    def _acknowledge(self, reply: str) -> None:
        self.connection.request(reply, b"+ACK", lambda *_: None)
        self.totals.finished += 1
        self._ask()


@dataclass(slots=True, kw_only=True)
class Load:
    """How the workers work.

    Attributes:
        task_s: mean seconds that a task takes; 0: none.
        later: calls a function after a number of seconds.
        is_over: whether no task is taken any more.
    """

    task_s: float
    later: Callable[[float, Callable[[], None]], object]
    is_over: bool = False


class Ps(Process):
    """Reports itself ready, and takes a snapshot every 30 s and whenever it is told to."""

    def __init__(self, connection: Connection, spec: JobSpec, identity: Identity, totals: Totals, load: Load) -> None:
        super().__init__(connection, spec, identity, totals)
        self._load = load
        connection.subscribe(subjects.order(spec.job, identity.name), self._on_order)

    def start(self) -> None:
        """Report ready and hold the model's part."""
        self.append(events.PsStarted(address="127.0.0.1:4000", claim=1))
        self.append(events.ModelInitialised(signature="s", parameters=1000))
        self._load.later(random.uniform(0, SNAPSHOT_INTERVAL_S), self._snapshot_on_schedule)

    def _snapshot_on_schedule(self) -> None:
        self._snapshot(0)
        self._load.later(SNAPSHOT_INTERVAL_S, self._snapshot_on_schedule)

    def _snapshot(self, request: int) -> None:
        ledger = LedgerRecord(finished=((0, self.totals.finished),), step=self.totals.finished)
        held = (GroupLedger(group=GroupId(self.name), ledger=ledger, partitions=((0, 1),)),)
        manifest = f"file:///storage/{self.spec.job}/{self.name}/{self.incarnation}/{ledger.step}/manifest"
        event = events.SnapshotTaken(manifest=manifest, request=request, ledgers=held, size_bytes=1 << 20, seconds=0.3)
        self.append(event)

    def _on_order(self, _subject: str, reply: str, _headers: bytes, data: bytes) -> None:
        command = codec.decode_command(data)
        self.connection.publish(reply, b"")
        match command:
            case commands.TakeSnapshot(request=request):
                self._snapshot(request)
            case commands.OpenPin(evaluation=evaluation):
                self.append(events.ModelPinned(evaluation=evaluation, step=self.totals.finished))
            case _:
                pass


class Launcher(Process):
    """Submits the job and starts the pods that the master orders.

    Args:
        connection, spec, totals: see ``Process``.
        load: how the workers work.
    """

    def __init__(self, connection: Connection, spec: JobSpec, totals: Totals, load: Load) -> None:
        identity = Identity(service=Service.LAUNCHER, name=LAUNCHER, incarnation=RUN)
        super().__init__(connection, spec, identity, totals)
        self.workers: list[Worker] = []
        self.ps: list[Ps] = []
        self._load = load
        connection.subscribe(subjects.order(spec.job, LAUNCHER), self._on_order)
        self.append(events.JobSubmitted(spec=spec))

    @property
    def processes(self) -> list[Process]:
        """All processes of the pods."""
        return [*self.ps, *self.workers]

    def start_training(self) -> None:
        """All workers begin to take tasks."""
        absorbed = ps_set_digest({ps.name: ps.incarnation for ps in self.ps})
        for worker in self.workers:
            worker.start(absorbed)

    def _on_order(self, _subject: str, reply: str, _headers: bytes, data: bytes) -> None:
        command = codec.decode_command(data)
        self.connection.publish(reply, b"")
        if not isinstance(command, commands.StartPod):
            raise RuntimeError(f"the master orders {command}")
        incarnation = new_incarnation()
        instance = PodInstance(f"1000-{incarnation}")
        identity = Identity(
            service=command.service, name=command.pod, instance=instance, run=RUN, incarnation=incarnation
        )
        if command.service is Service.PS:
            ps = Ps(self.connection, self.spec, identity, self.totals, self._load)
            self.ps.append(ps)
        else:
            worker = Worker(self.connection, self.spec, identity, self.totals, self._load)
            self.workers.append(worker)
        self.append(events.PodStarted(pod=command.pod, service=command.service, instance=instance))
        if command.service is Service.PS:
            ps.start()
        else:
            worker.declare()
