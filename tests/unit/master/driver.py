"""Drives the master's core without a broker: appends the events of services, and decides as the shell does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard, TypeVar

from elasticdl.master.core import State, decide
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.fold import fold
from elasticdl.master.core.training.statistics import EpochTotals
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, Limits, ModelSpec
from elasticdl.shared.job.tasks import EPOCH_METRICS, TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import Command, JobState
from elasticdl.shared.messages.events import Envelope, Event, GroupLedger, LogRecord
from elasticdl.shared.names import (
    NO_INSTANCE,
    NOBODY,
    GroupId,
    Incarnation,
    JobId,
    PodInstance,
    PodName,
    Purpose,
    Service,
)

CommandT = TypeVar("CommandT")
PS = PodName("ps-0")


def plan(records: int = 1000, epochs: int = 2, batch: int = 10, batches: int = 5, max_step: int = 0) -> Plan:
    """A small plan over one source."""
    source = Source(uri="memory://data/a.csv", size_bytes=records * 10, etag="1", records=records)
    return Plan(
        sources=(source,),
        minibatch_size=batch,
        minibatches_per_task=batches,
        epochs=epochs,
        shuffle=Shuffle.RECORDS,
        seed=7,
        max_step=max_step,
    )


def job_spec(training: Plan | None = None, **changes: object) -> JobSpec:
    """A job over ``plan()`` with two workers and one ps."""
    spec = JobSpec(
        job=JobId("test-1"),
        created_s=0.0,
        plan=training or plan(),
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="/models/m.py", symbol="custom_model"),
        storage="memory://storage",
        limits=Limits(),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


class Driver:
    """A log, a state, and the decided commands that a test has not taken yet."""

    def __init__(self, spec: JobSpec | None = None) -> None:
        self.log: list[LogRecord] = []
        self.state = State()
        self.now_s = 0.0
        self.commands: list[Command] = []
        self._numbers: dict[Incarnation, int] = {}
        self._starts: dict[PodName, int] = {}
        self._dispatches: dict[TaskRef, int] = {}
        self.run = Incarnation("launcher")
        """The run that the workers and ps belong to."""
        self.computes_metrics = True
        """Whether the metrics of an epoch are there as soon as a worker is asked for them."""
        submitted = events.JobSubmitted(spec=spec or job_spec())
        self.feed(submitted, Service.LAUNCHER, "launcher")
        self.feed(events.TermStarted(term=1), Service.MASTER, "master")

    def feed(self, event: Event, service: Service, name: str, incarnation: str = "", instance: str = "") -> None:
        """Append an input, then decide until no command is left. Workers compute the metrics of epochs at once.

        Args:
            instance: the sender's process; empty: it is called like the incarnation.
        """
        self._feed(event, service, name, incarnation, instance)
        while self.computes_metrics and (merge := next((each for each in self.commands if _is_epoch(each)), None)):
            self.commands.remove(merge)
            task = TaskRef(purpose=Purpose.MERGE, number=merge.tasks[0][0])
            computed = self._epoch_metrics(task, merge.dispatch)
            self._feed(computed, Service.WORKER, "worker-0", self.incarnation("worker-0"))

    def _epoch_metrics(self, task: TaskRef, dispatch: int) -> events.TaskFinished:
        """The ps have the sums of all batches that the workers have reported."""
        assert self.state.training is not None
        epoch = self.state.training.statistics.epochs.get(self.state.merges[task.number].subject, EpochTotals())
        return events.TaskFinished(
            task=task, dispatch=dispatch, attempt=1, batches=epoch.batches, records=epoch.records
        )

    def _feed(self, event: Event, service: Service, name: str, incarnation: str, instance: str = "") -> None:
        self._append(event, service, name, incarnation or name, instance)
        for _ in range(50):
            decision = decide(self.state, self.now_s)
            if not decision:
                return
            decided = events.Decided(
                term=self.state.term,
                after_seq=self.state.seq,
                now_s=self.now_s,
                commands=decision.commands,
                reasons=decision.reasons,
            )
            self._append(decided, Service.MASTER, "master", "master")
            self.commands += decision.commands
            for command in decision.commands:
                self._on_dispatch(command)
        raise AssertionError(f"no end of decisions: {decision}")

    def _on_dispatch(self, command: Command) -> None:
        if not isinstance(command, commands.Dispatch):
            return
        for start, end in command.tasks:
            for number in range(start, end):
                self._dispatches[TaskRef(purpose=command.purpose, number=number)] = command.dispatch

    def _append(self, event: Event, service: Service, name: str, incarnation: str, instance: str = "") -> None:
        sender = Incarnation(incarnation)
        if isinstance(event, events.JobResumed) and not event.continues:
            event = replace(event, continues=self.state.run)
        self._numbers[sender] = self._numbers.get(sender, 0) + 1
        self.now_s += 0.01
        if service is Service.LAUNCHER and isinstance(event, events.JobSubmitted | events.JobResumed):
            self.run = sender
        declares = service in (Service.WORKER, Service.PS) and self._numbers[sender] == 1
        envelope = Envelope(
            service=service,
            name=PodName(name),
            incarnation=sender,
            run=self.run if declares else NOBODY,
            instance=PodInstance(instance or incarnation) if declares else NO_INSTANCE,
            number=self._numbers[sender],
            time_s=self.now_s,
            event=event,
        )
        record = LogRecord(seq=len(self.log) + 1, envelope=envelope)
        self.log.append(record)
        evolve(self.state, record)

    def take(self, kind: type[CommandT]) -> list[CommandT]:
        """Remove and return the pending commands of one kind."""
        found: list[CommandT] = [command for command in self.commands if isinstance(command, kind)]
        self.commands = [command for command in self.commands if not isinstance(command, kind)]
        return found

    def incarnation(self, pod: str) -> str:
        """Id of a pod's present instance."""
        return f"{pod}.{self._starts.get(PodName(pod), 0)}"

    def start_pod(
        self, pod: str, ledgers: Mapping[str, LedgerRecord] | None = None, *, initialised: bool = False
    ) -> None:
        """A process starts under this name and reports ready; ``initialised``: a ps has a model, too."""
        service = Service(pod.split("-")[0])
        self._starts[PodName(pod)] = self._starts.get(PodName(pod), 0) + 1
        self.feed_from_launcher(events.PodStarted(pod=PodName(pod), service=service, instance=self.instance(pod)))
        if service is Service.WORKER:
            self.feed(events.WorkerStarted(), service, pod, self.incarnation(pod))
            return
        groups = tuple(group for ledger in (ledgers or {}).values() for group in self.groups(pod, ledger))
        self.feed(events.PsStarted(address="127.0.0.1:1", ledgers=groups), service, pod, self.incarnation(pod))
        if initialised and service is Service.PS:
            self.feed(events.ModelInitialised(signature="s", parameters=1), service, pod, self.incarnation(pod))

    def groups(self, ps: str, ledger: LedgerRecord) -> tuple[GroupLedger, ...]:
        """A ledger as that of everything that a ps has."""
        return (GroupLedger(group=GroupId("g"), ledger=ledger, partitions=self.state.owned(PodName(ps))),)

    def instance(self, pod: str) -> PodInstance:
        """A pod's present instance. Each has one incarnation, and the tests need no other name for it."""
        return PodInstance(self.incarnation(pod))

    def start_all(self, *, initialised: bool = False) -> None:
        """Start everything that the master asked for."""
        for command in self.take(commands.StartPod):
            self.start_pod(command.pod, initialised=initialised)

    def exit_pod(self, pod: str, cause: events.ExitCause, exit_code: int = -9, **details: object) -> None:
        """A process ends."""
        event = events.PodExited(
            pod=PodName(pod),
            service=Service(pod.split("-")[0]),
            instance=self.instance(pod),
            cause=cause,
            exit_code=exit_code,
            **details,  # type: ignore[arg-type]
        )
        self.feed_from_launcher(event)

    def feed_from_launcher(self, event: Event) -> None:
        """Append an input of the launcher that opened the present run."""
        self.feed(event, Service.LAUNCHER, "launcher", self.state.run)

    def finish(self, task: int, worker: str = "worker-0", purpose: Purpose = Purpose.TRAIN, **details: object) -> None:
        """A worker finishes a task, absorbed by every ps' present instance unless ``details`` has other ``credits``."""
        ps = [pod.name for pod in self.state.pods_of(Service.PS)]
        absorbed_by = details.pop("credits", {name: self.incarnation(name) for name in ps})
        details.setdefault("absorbed_by", ps_set_digest(absorbed_by))  # type: ignore[arg-type]
        batches = details.setdefault("batches", 5)
        if batches and purpose is Purpose.TRAIN:
            details.setdefault("counted", ((0, batches),))
        details.setdefault("placement_version", self.state.placement.version)
        finished = TaskRef(purpose=purpose, number=task)
        details.setdefault("dispatch", self._dispatches.get(finished, 1))
        event = events.TaskFinished(
            task=finished,
            attempt=1,
            **details,  # type: ignore[arg-type]
        )
        self.feed(event, Service.WORKER, worker, self.incarnation(worker))

    def fire(self, timer: str) -> None:
        """A timer that the core has asked for comes due."""
        due_s = self.state.timers[timer]
        self.now_s = max(self.now_s, due_s)
        self.feed(events.TimerFired(timer=timer, due_s=due_s), Service.MASTER, "master")

    def dispatched(self, purpose: Purpose = Purpose.TRAIN) -> list[int]:
        """Numbers of the tasks that were dispatched since the last call, in order."""
        taken = self.take(commands.Dispatch)
        mine = [command for command in taken if command.purpose is purpose]
        self.commands += [command for command in taken if command.purpose is not purpose]
        return [number for command in mine for start, end in command.tasks for number in range(start, end)]

    def failure(self) -> str:
        """Why the job has to end, or empty."""
        return self.state.failure.message if self.state.failure else ""

    def is_in(self, job_state: JobState) -> bool:
        """Whether the job is in this state."""
        return self.state.job_state is job_state

    def check_replay(self) -> None:
        """Folding the log gives the live state."""
        assert fold(self.log) == self.state


def whole(training: Plan, **changes: int) -> LedgerRecord:
    facts = {"step": training.batches, "records": training.records, "checksum": 0} | changes
    return LedgerRecord(finished=((0, training.tasks),), **facts)  # type: ignore[arg-type]


def close(driver: Driver, ledger: LedgerRecord, ps: tuple[str, ...] = ("ps-0",)) -> None:
    """Answer the final snapshot order and the audit's reading."""
    orders = driver.take(commands.TakeSnapshot)
    assert [order.ps for order in orders] == list(ps)
    for order in orders:
        name, ledgers = f"memory://{order.ps}/1", driver.groups(order.ps, ledger)
        taken = events.SnapshotTaken(manifest=name, request=order.request, ledgers=ledgers, size_bytes=1, seconds=0.1)
        driver.feed(taken, Service.PS, order.ps, driver.incarnation(order.ps))
    for reading in driver.take(commands.ReadLedgers):
        read = events.LedgersRead(ps=reading.ps, manifest=reading.manifest, ledgers=driver.groups(reading.ps, ledger))
        driver.feed(read, Service.MASTER, "master", "master")


def _is_epoch(command: Command) -> TypeGuard[commands.Dispatch]:
    return isinstance(command, commands.Dispatch) and command.label == EPOCH_METRICS
