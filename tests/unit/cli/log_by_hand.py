"""A job's log made by hand, folded and told while it is written."""

from __future__ import annotations

from elasticdl.cli.narration import Narrator
from elasticdl.master.core import State, evolve
from elasticdl.shared import commands, events
from elasticdl.shared.events import Envelope, Event, LogRecord
from elasticdl.shared.job import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.names import Incarnation, JobId, PodName, Purpose, Service
from elasticdl.shared.plan import Plan, Shuffle, Source
from elasticdl.shared.tasks import TaskRef

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


class Log:
    """A log, folded while it is written."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.state = State()
        self.told: list[str] = []
        self._narrator = Narrator()
        self._numbers: dict[str, int] = {}

    def add(self, service: Service, name: PodName, *happened: Event) -> None:
        for event in happened:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            envelope = Envelope(
                service=service,
                name=name,
                incarnation=Incarnation(name * 2),
                number=self._numbers[name],
                time_s=100.0 + len(self.records),
                event=event,
            )
            self.records.append(LogRecord(seq=len(self.records) + 1, envelope=envelope))
            evolve(self.state, self.records[-1])
            self.told += self._narrator.lines(self.records[-1], self.state)

    def decide(self, *ordered: commands.Command) -> None:
        decided = events.Decided(term=1, after_seq=len(self.records), now_s=100.0 + len(self.records), commands=ordered)
        self.add(Service.MASTER, PodName("master"), decided)
