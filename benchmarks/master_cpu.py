"""CPU microseconds of the master's core: one decision that finds nothing to do, and all that one task causes.

    python benchmarks/master_cpu.py [--workers 1250] [--ps 64] [--tasks 500]

Every worker runs one of the dispatched tasks. There is neither a broker nor a log. The core decides after each record;
a real master, which first applies all records that wait, needs less. Prints one line of JSON: the least of 50 idle
decisions, and the mean per task of ``--tasks`` tasks that are finished and followed by others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from elasticdl.master.core import State, decide
from elasticdl.master.core.evolve import evolve
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, Limits, ModelSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import Envelope, Event, LogRecord
from elasticdl.shared.names import (
    LAUNCHER,
    MASTER,
    NO_INSTANCE,
    NOBODY,
    Incarnation,
    JobId,
    PodInstance,
    PodName,
    Purpose,
    Service,
    pod_name,
)

TASKS = 1_000_000


def job_spec(workers: int, ps: int) -> JobSpec:
    """A job of a million tasks of one batch."""
    source = Source(uri="memory://data/a.csv", size_bytes=10 * TASKS, etag="1", records=TASKS)
    plan = Plan(sources=(source,), minibatch_size=1, minibatches_per_task=1, epochs=1, shuffle=Shuffle.RECORDS, seed=7)
    return JobSpec(
        job=JobId("benchmark"),
        created_s=0.0,
        plan=plan,
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="/models/m.py", symbol="custom_model"),
        storage="memory://storage",
        limits=Limits(),
        workers=workers,
        ps=ps,
    )


class Job:
    """A job's log and state; decides after every input.

    Args:
        workers: number of workers.
        ps: number of ps.
    """

    def __init__(self, workers: int, ps: int) -> None:
        self.state = State()
        self._numbers: Counter[PodName] = Counter()
        self._seq = 0
        self._workers = [pod_name(Service.WORKER, number) for number in range(workers)]
        self._ps = [pod_name(Service.PS, number) for number in range(ps)]
        self.input(events.JobSubmitted(spec=job_spec(workers, ps)), LAUNCHER, Service.LAUNCHER)
        self.input(events.TermStarted(term=1), MASTER, Service.MASTER)
        for pod in [*self._workers, *self._ps]:
            service = Service(pod.split("-")[0])
            started = events.PodStarted(pod=pod, service=service, instance=PodInstance(pod))
            self.input(started, LAUNCHER, Service.LAUNCHER)
            ready = events.WorkerStarted() if service is Service.WORKER else events.PsStarted(address="a:1", ledgers=())
            self.input(ready, pod, service)
        for task, worker in enumerate(self._workers):
            self.take(task, worker)

    def input(self, event: Event, name: PodName, service: Service) -> None:
        """Apply an input, then decide until nothing is left to do."""
        self._apply(event, name, service)
        while decision := decide(self.state, self.state.now_s):
            decided = events.Decided(
                term=1,
                after_seq=self.state.seq,
                now_s=self.state.now_s,
                commands=decision.commands,
                reasons=decision.reasons,
            )
            self._apply(decided, MASTER, Service.MASTER)
            self._apply(events.CommandsRan(up_to=self._seq, failures=()), MASTER, Service.MASTER)

    def take(self, task: int, worker: PodName) -> None:
        """A worker takes a task."""
        taken = events.TaskTaken(task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, attempt=1, reply="r")
        self.input(taken, worker, Service.WORKER)

    def finish(self, task: int) -> None:
        """A worker finishes its task and takes another one."""
        worker = self._workers[task % len(self._workers)]
        finished = events.TaskFinished(
            task=TaskRef(purpose=Purpose.TRAIN, number=task),
            dispatch=1,
            attempt=1,
            batches=1,
            counted=((0, 1),),
            absorbed_by=ps_set_digest({ps: Incarnation(ps) for ps in self._ps}),
            placement_version=1,
        )
        self.input(finished, worker, Service.WORKER)
        self.take(task + len(self._workers), worker)

    def _apply(self, event: Event, name: PodName, service: Service) -> None:
        self._numbers[name] += 1
        self._seq += 1
        is_pod = service in (Service.WORKER, Service.PS)
        envelope = Envelope(
            service=service,
            name=name,
            incarnation=Incarnation(name),
            run=Incarnation(LAUNCHER) if is_pod else NOBODY,
            instance=PodInstance(name) if is_pod else NO_INSTANCE,
            number=self._numbers[name],
            time_s=self._seq / 1000,
            event=event,
        )
        evolve(self.state, LogRecord(seq=self._seq, envelope=envelope))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1250)
    parser.add_argument("--ps", type=int, default=64)
    parser.add_argument("--tasks", type=int, default=500)
    arguments = parser.parse_args()
    job = Job(arguments.workers, arguments.ps)
    assert job.state.training is not None and job.state.job_state is commands.JobState.TRAINING
    idle = []
    for _ in range(50):
        began_s = time.process_time()
        decide(job.state, job.state.now_s)
        idle.append(time.process_time() - began_s)
    began_s = time.process_time()
    for task in range(arguments.tasks):
        job.finish(task)
    facts = {
        "outstanding": len(job.state.training.outstanding),
        "idle_decision_us": round(1e6 * min(idle)),
        "task_us": round(1e6 * (time.process_time() - began_s) / arguments.tasks),
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
