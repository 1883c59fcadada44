"""An event log written by tests, folded while it is written, and the messages about it."""

from __future__ import annotations

from elasticdl.master.core import State
from elasticdl.master.core.evolve import evolve
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, Event, ExitCause, LogRecord
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, JobId, PodInstance, PodName, Purpose, Service
from elasticdl.views.event_messages import EventMessages

PLAN = Plan(
    sources=(Source(uri="file:///data/a.csv", size_bytes=1, etag="e", records=40),),
    minibatch_size=10,
    minibatches_per_task=2,
    epochs=1,
    shuffle=Shuffle.NONE,
    seed=7,
)
SPEC = JobSpec(
    job=JobId("digits-abcdef"),
    created_s=100.0,
    plan=PLAN,
    checksum=0,
    data=DataSpec(format="csv"),
    model=ModelSpec(path="/m.py", symbol="custom_model"),
    storage="file:///storage",
    workers=2,
    envs={"MINE": "yes"},
)
TASK = TaskRef(purpose=Purpose.TRAIN, number=1)
PS, WORKER = PodName("ps-0"), PodName("worker-0")
ABSORBED = ps_set_digest({PS: Incarnation(PS * 2)})
PROCESS, NEXT_PROCESS = PodInstance("1"), PodInstance("2")


class Log:
    """A log, folded while it is written; ``shown`` holds the messages for the user."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.state = State()
        self.shown: list[str] = []
        self._messages = EventMessages()
        self._numbers: dict[str, int] = {}

    def add(self, service: Service, name: PodName, *happened: Event) -> None:
        for event in happened:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            envelope = Envelope(
                service=service,
                name=name,
                incarnation=Incarnation(name * 2),
                run=Incarnation("launcherlauncher") if service in (Service.WORKER, Service.PS) else NOBODY,
                instance=self.state.pods[name].instance if name in self.state.pods else NO_INSTANCE,
                number=self._numbers[name],
                time_s=100.0 + len(self.records),
                event=event,
            )
            self.records.append(LogRecord(seq=len(self.records) + 1, envelope=envelope))
            evolve(self.state, self.records[-1])
            self.shown += self._messages.lines(self.records[-1], self.state)

    def decide(self, *ordered: commands.Command) -> None:
        decided = events.Decided(term=1, after_seq=len(self.records), now_s=100.0 + len(self.records), commands=ordered)
        self.add(Service.MASTER, PodName("master"), decided)


def half_done() -> Log:
    """A job of two tasks; the worker that computed the second one was killed."""
    log = Log()
    launcher = PodName("launcher")
    log.add(Service.LAUNCHER, launcher, events.JobSubmitted(spec=SPEC))
    log.add(Service.MASTER, PodName("master"), events.TermStarted(term=1))
    log.decide(
        commands.StartPod(pod=PS, service=Service.PS),
        commands.StartPod(pod=WORKER, service=Service.WORKER),
        commands.EnterState(state=JobState.TRAINING),
        commands.Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((0, 2),)),
    )
    log.add(Service.LAUNCHER, launcher, events.PodStarted(pod=PS, service=Service.PS, instance=PROCESS))
    log.add(Service.LAUNCHER, launcher, events.PodStarted(pod=WORKER, service=Service.WORKER, instance=NEXT_PROCESS))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    log.add(Service.WORKER, WORKER, events.WorkerStarted(notes=("one thread",)))
    first = TaskRef(purpose=Purpose.TRAIN, number=0)
    log.add(
        Service.WORKER,
        WORKER,
        events.TaskTaken(task=first, dispatch=1, attempt=1, reply="r0"),
        events.TaskFinished(
            task=first,
            dispatch=1,
            attempt=1,
            absorbed_by=ABSORBED,
            records=20,
            batches=2,
            counted=((0, 2),),
            loss_sum=1.0,
            staleness={0: 1, 3: 1},
            overflows=1,
            times=Times.of({"pull": 1.0, "compute": 3.0}),
        ),
        events.TaskTaken(task=TASK, dispatch=1, attempt=1, reply="r1"),
    )
    held = events.RunningBatch(task=TASK, batch=1)
    log.add(
        Service.LAUNCHER,
        launcher,
        events.PodExited(
            pod=WORKER,
            service=Service.WORKER,
            instance=NEXT_PROCESS,
            cause=ExitCause.PREEMPTED,
            exit_code=-9,
            running_batches=(held,),
        ),
    )
    return log


def finish(log: Log) -> None:
    """The next worker finishes the second task."""
    log.decide(commands.ReturnDelivery(reply="r1"), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(
        Service.WORKER,
        WORKER,
        events.TaskTaken(task=TASK, dispatch=1, attempt=2, reply="r2"),
        events.TaskFinished(
            task=TASK,
            dispatch=1,
            attempt=2,
            absorbed_by=ABSORBED,
            records=20,
            batches=2,
            counted=((0, 2),),
            loss_sum=2.0,
        ),
    )
