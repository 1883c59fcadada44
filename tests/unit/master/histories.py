"""Histories of jobs, drawn by hypothesis: any event that may happen to a job, in any order."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st
from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import Decided, Envelope, ExitCause, FailureKind, LogRecord
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service

Draw = Callable[[st.SearchStrategy[int]], int]


class History:
    """A job, and the random events that happen to it."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        spec = job_spec(
            plan(records=300, epochs=2),
            validation=plan(records=60, epochs=1),
            validation_data=job_spec().data,
            evaluation_steps=20,
            output="file:///out",
            ps=2,
        )
        self.driver = Driver(spec)
        self._started: set[str] = set()
        self._term = 1

    def step(self) -> None:
        """Let one random event happen."""
        actions = (
            *[self._start, self._work, self._work, self._work, self._evaluate],
            *[self._take, self._fail, self._exit, self._reach_step, self._miss_heartbeats, self._scale],
            *[self._new_term, self._timer, self._early, self._close, self._stop_or_resume],
        )
        actions[self._number(len(actions))]()

    def _number(self, below: int) -> int:
        return self._draw(st.integers(0, below - 1))

    def _pod(self) -> str:
        return sorted(self._started)[self._number(len(self._started))]

    def _worker(self) -> str:
        return f"worker-{self._number(2)}"

    def _start(self) -> None:
        driver = self.driver
        for order in driver.take(commands.StartPod):
            begun = LedgerRecord(finished=((0, self._number(4)),), open={5: 2}, step=self._number(9))
            driver.start_pod(order.pod, {"g": begun} if order.service is Service.PS else None)
            self._started.add(order.pod)

    def _work(self) -> None:
        task = self._number(self.driver.state.plan.tasks)
        states = {"loss": (array("d", [0.1 * task, 1.0]).tobytes(),)}
        self.driver.finish(
            task, self._worker(), loss_sum=0.1, states=states, times=Times.of({"compute": 0.4, "pull": 0.1})
        )

    def _evaluate(self) -> None:
        driver = self.driver
        for order in driver.take(commands.OpenPin):
            pinned = events.ModelPinned(evaluation=order.evaluation, step=self._number(50))
            driver.feed(pinned, Service.PS, order.ps, driver.incarnation(order.ps))
        for purpose in (Purpose.EVALUATE, Purpose.MERGE, Purpose.EXPORT):
            for number in driver.dispatched(purpose):
                states = {"loss": (array("d", [1.0]).tobytes(),)}
                driver.finish(number, purpose=purpose, states=states, results={"loss": float("inf"), "auc": 0.1})

    def _take(self) -> None:
        task = TaskRef(purpose=Purpose.TRAIN, number=self._number(self.driver.state.plan.tasks))
        worker = self._worker()
        taken = events.TaskTaken(task=task, dispatch=1, attempt=1, reply=f"$JS.ACK.{self._number(9)}")
        self.driver.feed(taken, Service.WORKER, worker, self.driver.incarnation(worker))

    def _fail(self) -> None:
        task = TaskRef(purpose=Purpose.TRAIN, number=self._number(4))
        failed = events.TaskFailed(task=task, dispatch=1, attempt=1, kind=FailureKind.USER_CODE, message="ünder\0")
        worker = self._worker()
        self.driver.feed(failed, Service.WORKER, worker, self.driver.incarnation(worker))

    def _exit(self) -> None:
        if self._started:
            cause = tuple(ExitCause)[self._number(len(ExitCause))]
            held = events.RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=1), batch=self._number(2))
            self.driver.exit_pod(self._pod(), cause, running_batches=(held,))

    def _reach_step(self) -> None:
        step = 20 * self._number(5)
        self.driver.feed(events.StepReached(step=step), Service.PS, "ps-0", self.driver.incarnation("ps-0"))

    def _miss_heartbeats(self) -> None:
        if self._started:
            pod = self._pod()
            incarnation = Incarnation(self.driver.incarnation(pod))
            missed = events.HeartbeatsMissed(pod=PodName(pod), incarnation=incarnation, silent_s=6.5)
            self.driver.feed(missed, Service.MASTER, "master", "master")

    def _scale(self) -> None:
        wanted = events.ScaleRequested(workers=1 + self._number(3), ps=self._number(4))
        self.driver.feed(wanted, Service.CLIENT, "client")

    def _new_term(self) -> None:
        self._term += 1
        self.driver.feed(events.TermStarted(term=self._term), Service.MASTER, "master", f"master.{self._term}")

    def _timer(self) -> None:
        timers = self.driver.state.timers
        if timers:
            name = sorted(timers)[self._number(len(timers))]
            self.driver.now_s = max(self.driver.now_s, timers[name])
            fired = events.TimerFired(timer=name, due_s=timers[name])
            self.driver.feed(fired, Service.MASTER, "master", "master")

    def _early(self) -> None:
        """A process reports ready before the process adapter has reported its start."""
        self.driver.feed(events.WorkerStarted(notes=("a", "b")), Service.WORKER, "worker-1", f"x.{self._number(9)}")

    def _close(self) -> None:
        driver = self.driver
        record = LedgerRecord(finished=((0, driver.state.plan.tasks),), step=driver.state.plan.batches)
        for order in driver.take(commands.TakeSnapshot):
            taken = events.SnapshotTaken(
                manifest="m", request=order.request, ledgers=driver.groups(order.ps, record), size_bytes=1, seconds=0.1
            )
            driver.feed(taken, Service.PS, order.ps, driver.incarnation(order.ps))
        for reading in driver.take(commands.ReadLedgers):
            read = events.LedgersRead(
                ps=reading.ps, manifest=reading.manifest, ledgers=driver.groups(reading.ps, record)
            )
            driver.feed(read, Service.MASTER, "master", "master")

    def _stop_or_resume(self) -> None:
        if self._number(4) == 0:
            self.driver.feed(events.StopRequested(reason="test"), Service.CLIENT, "client")
        elif self.driver.state.is_final:
            self.driver.feed(events.JobResumed(reason="test"), Service.LAUNCHER, "launcher")


def arriving_late(log: list[LogRecord], is_late: Callable[[], bool]) -> list[LogRecord]:
    """The same log, in which other inputs come between some decisions' last input and their arrival."""
    arrived: list[LogRecord] = []
    delayed: list[Envelope] = []
    places: dict[int, int] = {}

    def append(envelope: Envelope) -> None:
        arrived.append(LogRecord(seq=len(arrived) + 1, envelope=envelope))

    for record in log:
        event = record.envelope.event
        if isinstance(event, Decided):
            delayed.append(replace(record.envelope, event=replace(event, after_seq=places[event.after_seq])))
            continue
        if delayed and (record.envelope.service is Service.MASTER or not is_late()):
            for envelope in delayed:
                append(envelope)
            delayed.clear()
        append(record.envelope)
        places[record.seq] = len(arrived)
    for envelope in delayed:
        append(envelope)
    return arrived
