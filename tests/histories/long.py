"""Logs of any length: the recorded log of a job, with as many tasks and workers as are wanted between its ends."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import replace

from tests.histories.logs import FOLDER, SUFFIX, read_log

from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import Command, Dispatch, EnterState, JobState, StartPod
from elasticdl.shared.messages.events import Envelope, Event, LogRecord
from elasticdl.shared.names import Incarnation, PodInstance, PodName, Purpose, Service, TaskId

TASK_S = 0.5
"""Seconds that a worker needs for a task, in the mean."""
DISPATCHED = 16
"""Tasks that a decision puts on the queue."""


class _Writer:
    """Gives records their senders, numbers and times."""

    def __init__(self, began_s: float) -> None:
        self.now_s = began_s
        self.seq = 0
        self._numbers: dict[str, int] = {}

    def record(self, service: Service, name: str, event: Event, instance: str = "") -> LogRecord:
        self.seq += 1
        self._numbers[name] = self._numbers.get(name, 0) + 1
        envelope = Envelope(
            service=service,
            name=PodName(name),
            incarnation=Incarnation(f"{name}-1"),
            number=self._numbers[name],
            time_s=self.now_s,
            run=Incarnation("launcher-1" if instance else ""),
            instance=PodInstance(instance),
            event=event,
        )
        return LogRecord(seq=self.seq, envelope=envelope)


def long_log(tasks: int, workers: int = 2, seed: int = 0, epochs: int = 0) -> Iterator[LogRecord]:
    """A job that trains ``tasks`` tasks, in a little more than two records each; its log ends while it trains.

    Worker 1 is half as fast as the others.

    Args:
        epochs: how many it has, over data of that size; 0: as many as it takes with the data of the recorded job.
    """
    recorded = list(read_log(FOLDER / f"plain{SUFFIX}"))
    opening = recorded[0].envelope
    assert isinstance(opening.event, events.JobSubmitted)
    plan = opening.event.spec.plan
    if epochs:
        (source,) = plan.sources
        larger = replace(source, records=-(-tasks // epochs) * plan.task_records)
        plan = replace(plan, sources=(larger,), epochs=epochs)
    else:
        plan = replace(plan, epochs=-(-tasks // (plan.tasks // plan.epochs)))
    sample = next(each.envelope.event for each in recorded if isinstance(each.envelope.event, events.TaskFinished))
    sample = replace(sample, absorbed_by=ps_set_digest({PodName("ps-0"): Incarnation("ps-0-1")}))
    rng = random.Random(seed)
    writer = _Writer(opening.time_s)
    yield writer.record(
        Service.LAUNCHER,
        "launcher",
        replace(opening.event, spec=replace(opening.event.spec, plan=plan, workers=workers)),
    )
    yield writer.record(Service.MASTER, "master", events.TermStarted(term=1))
    names = [f"worker-{number}" for number in range(workers)]
    pods = [("ps-0", Service.PS), *((name, Service.WORKER) for name in names)]
    yield _decided(writer, *(StartPod(pod=PodName(name), service=service) for name, service in pods))
    for number, (name, service) in enumerate(pods):
        writer.now_s += 0.001
        started = events.PodStarted(pod=PodName(name), service=service, instance=PodInstance(f"{number + 1}-1"))
        yield writer.record(Service.LAUNCHER, "launcher", started)
    writer.now_s += 3.0
    ready = events.PsStarted(address="127.0.0.1:1", ledgers=(), restored_from="", claim=1)
    yield writer.record(Service.PS, "ps-0", ready, "1-1")
    yield _decided(writer, EnterState(state=JobState.TRAINING))
    for number, name in enumerate(names):
        yield writer.record(Service.WORKER, name, events.WorkerStarted(notes=()), f"{number + 2}-1")
    yield from _training(writer, tasks, names, sample, rng)


def _training(
    writer: _Writer, tasks: int, names: list[str], sample: events.TaskFinished, rng: random.Random
) -> Iterator[LogRecord]:
    """Each worker takes a task, and finishes it before it takes the next one."""
    free = [(writer.now_s, name) for name in names]
    heapq.heapify(free)
    held: dict[str, TaskRef] = {}
    taken = dispatched = 0
    while held or taken < tasks:
        if taken < tasks and dispatched < min(tasks, taken + len(names) + DISPATCHED):
            until = min(tasks, dispatched + DISPATCHED)
            yield _decided(writer, Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((dispatched, until),)))
            yield writer.record(Service.MASTER, "master", events.CommandsRan(up_to=writer.seq))
            dispatched = until
        now_s, name = heapq.heappop(free)
        writer.now_s = max(writer.now_s, now_s)
        if finished := held.pop(name, None):
            yield writer.record(Service.WORKER, name, replace(sample, task=finished, dispatch=1, attempt=1))
        if taken >= tasks:
            continue
        ref = TaskRef(purpose=Purpose.TRAIN, number=TaskId(taken))
        taken += 1
        held[name] = ref
        yield writer.record(
            Service.WORKER, name, events.TaskTaken(task=ref, dispatch=1, attempt=1, reply=f"train.1.{taken}.{taken}")
        )
        spent_s = TASK_S * rng.uniform(0.8, 1.2) * (2.0 if name == "worker-1" else 1.0)
        heapq.heappush(free, (writer.now_s + spent_s, name))


def _decided(writer: _Writer, *commands: Command) -> LogRecord:
    decided = events.Decided(term=1, after_seq=writer.seq, now_s=writer.now_s, commands=commands)
    return writer.record(Service.MASTER, "master", decided)
