"""How long a master takes from the start of its process to its first decision, on a long log of a real nats-server.

    python benchmarks/recovery.py [--records 3000000] [--starts 5] [--tail 4999] [--whole]

The log is what a job of 8 workers and 2 ps leaves: the core itself decides while it is written, workers come and go, a
ps takes snapshots. Before each start a worker dies, so that a new master has something to decide at once. ``--whole``
also measures recovery without a core snapshot, once. Seconds are wall time and, in brackets, the master's own CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import nats
import psutil
from nats.aio.client import Client

from elasticdl.master.core import State, decide
from elasticdl.master.core.evolve import evolve
from elasticdl.shared.bus import nats_bus, subjects
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import codec, events
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.messages.events import Decided, Envelope, Event, ExitCause, GroupLedger, LogRecord
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import (
    MASTER,
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
from elasticdl.shared.process.settings import MasterSettings, to_environment
from elasticdl.views import core_snapshot

JOB = JobId("recovery-1")
WORKERS, PS = 8, 2
ACKNOWLEDGED_EVERY = 1000
DECIDES_EVERY = 64
EVENT_S = 0.001
Message = tuple[str, bytes]


def job_spec(records: int) -> JobSpec:
    """A job whose log gets that long: two records per task."""
    source = Source(uri="file:///data/a.csv", size_bytes=1 << 30, etag="1", records=records * 64)
    plan = Plan(sources=(source,), minibatch_size=16, minibatches_per_task=8, epochs=2, shuffle=Shuffle.TASKS, seed=1)
    model = ModelSpec(path="/models/m.py", symbol="custom_model")
    return JobSpec(
        job=JOB,
        created_s=0.0,
        plan=plan,
        checksum=0,
        data=DataSpec(format="csv"),
        model=model,
        storage="memory://storage",
        workers=WORKERS,
        ps=PS,
    )


class Author:
    """Writes the log, and lives in its state as the master does."""

    def __init__(self, spec: JobSpec) -> None:
        self.state = State()
        self.seq = 0
        self._spec = spec
        self._random = random.Random(1)
        self._numbers: dict[str, int] = {}
        self._queue: deque[int] = deque()
        self._lives: dict[str, int] = {}

    def begin(self) -> Iterator[Message]:
        """From the submission to the first dispatch."""
        yield self._say(events.JobSubmitted(spec=self._spec), Service.LAUNCHER, "launcher", "launcher.1")
        yield self._say(events.TermStarted(term=1), Service.MASTER, "master", "master.1")
        yield from self._decide()
        for ps in range(PS):
            yield from self._start(Service.PS, f"ps-{ps}", events.PsStarted(address="127.0.0.1:4000"))
        for worker in range(WORKERS):
            yield from self._start(Service.WORKER, f"worker-{worker}", events.WorkerStarted(notes=("1 thread",)))
        yield from self._decide()

    def go_on(self, until: int) -> Iterator[Message]:
        """Training, up to a sequence number or a little more."""
        while self.seq < until:
            worker = f"worker-{self._random.randrange(WORKERS)}"
            if not self._queue:
                yield from self._decide()
            task = TaskRef(purpose=Purpose.TRAIN, number=self._queue.popleft())
            reply = f"train.1.{task.number}.{task.number}"
            yield self._of_worker(worker, events.TaskTaken(task=task, dispatch=1, attempt=1, reply=reply))
            yield self._of_worker(worker, self._finished(task))
            if self.seq % DECIDES_EVERY < 2:
                yield from self._decide()
            if self.seq % 5000 < 2:
                yield self._of_ps("ps-0", self._snapshot("ps-0"))
            if self.seq % 50_000 < 2:
                yield from self._replace(worker)

    def die(self, worker: str) -> Message:
        """A worker dies, and no master has decided anything yet."""
        return self._exit(worker, Service.WORKER)

    def _finished(self, task: TaskRef) -> Event:
        return events.TaskFinished(
            task=task,
            dispatch=1,
            attempt=1,
            absorbed_by=ps_set_digest({PodName(f"ps-{ps}"): Incarnation(self._life(f"ps-{ps}")) for ps in range(PS)}),
            records=128,
            batches=8,
            counted=((0, 8),),
            loss_sum=3.2,
            times=Times.of({"read": 0.01, "feed": 0.01, "pull": 0.02, "compute": 0.1, "push": 0.02}),
        )

    def _snapshot(self, ps: str) -> Event:
        done = self.state.training.complete.ranges() if self.state.training else []
        ledger = LedgerRecord(finished=tuple(done), step=self.seq, records=self.seq, checksum=self.seq)
        manifest = f"file:///storage/{ps}/{self._life(ps)}/{self.seq}/manifest"
        held = (GroupLedger(group=GroupId(ps), ledger=ledger, partitions=self.state.owned(PodName(ps))),)
        return events.SnapshotTaken(manifest=manifest, request=0, ledgers=held, size_bytes=1 << 20, seconds=0.3)

    def _replace(self, worker: str) -> Iterator[Message]:
        yield self._exit(worker, Service.WORKER)
        yield from self._decide()
        yield from self._start(Service.WORKER, worker, events.WorkerStarted())

    def _exit(self, pod: str, service: Service) -> Message:
        exited = events.PodExited(
            pod=PodName(pod),
            service=service,
            instance=PodInstance(self._life(pod)),
            cause=ExitCause.PREEMPTED,
            exit_code=-9,
        )
        return self._say(exited, Service.LAUNCHER, "launcher", "launcher.1")

    def _start(self, service: Service, pod: str, ready: Event) -> Iterator[Message]:
        self._lives[pod] = self._lives.get(pod, 0) + 1
        started = events.PodStarted(pod=PodName(pod), service=service, instance=PodInstance(self._life(pod)))
        yield self._say(started, Service.LAUNCHER, "launcher", "launcher.1")
        yield self._say(ready, service, pod, self._life(pod))

    def _of_worker(self, worker: str, event: Event) -> Message:
        return self._say(event, Service.WORKER, worker, self._life(worker))

    def _of_ps(self, ps: str, event: Event) -> Message:
        return self._say(event, Service.PS, ps, self._life(ps))

    def _life(self, pod: str) -> str:
        return f"{pod}.{self._lives.get(pod, 0)}"

    def _decide(self) -> Iterator[Message]:
        now_s = self.seq * EVENT_S
        while decision := decide(self.state, now_s):
            decided = Decided(
                term=1,
                after_seq=self.state.seq,
                now_s=now_s,
                commands=decision.commands,
                reasons=decision.reasons,
            )
            yield self._say(decided, Service.MASTER, "master", "master.1")
            for command in decision.commands:
                if isinstance(command, Dispatch):
                    self._queue += [number for start, end in command.tasks for number in range(start, end)]
            yield self._say(events.CommandsRan(up_to=self.seq), Service.MASTER, "master", "master.1")

    def _say(self, event: Event, service: Service, name: str, life: str) -> Message:
        self.seq += 1
        self._numbers[life] = self._numbers.get(life, 0) + 1
        is_pod = service in (Service.WORKER, Service.PS)
        envelope = Envelope(
            service=service,
            name=PodName(name),
            incarnation=Incarnation(life),
            run=Incarnation("launcher.1") if is_pod else NOBODY,
            instance=PodInstance(life) if is_pod else NO_INSTANCE,
            number=self._numbers[life],
            time_s=self.seq * EVENT_S,
            event=event,
        )
        evolve(self.state, LogRecord(seq=self.seq, envelope=envelope))
        by_master = service is Service.MASTER
        subject = subjects.decision(JOB) if by_master else subjects.event(JOB, service, PodName(name))
        return subject, codec.encode_envelope(envelope)


async def publish(client: Client, author: Author, messages: Iterator[Message], *, ids: bool = False) -> None:
    """Append to the log; only now and then is an acknowledgement waited for, and says that nothing was lost.

    With ``ids`` each has the header that services send; the broker remembers all of them for ten minutes.
    """
    for number, (subject, data) in enumerate(messages):
        headers = {"Nats-Msg-Id": f"0123456789ab.{author.seq}"} if ids else None
        if number % ACKNOWLEDGED_EVERY:
            await client.publish(subject, data, headers=headers)
        else:
            await client.request(subject, data, timeout=60, headers=headers)
    stream = subjects.events_stream(JOB)
    bus = await nats_bus.connect(f"nats://{client.connected_url.netloc}", JOB)  # type: ignore[union-attr]
    while (last := await bus.log.last_seq()) < author.seq:
        await asyncio.sleep(0.05)
    await bus.close()
    if last != author.seq:
        raise SystemExit(f"{stream} ends at {last}, not at {author.seq}")


async def first_decision(client: Client, url: str, folder: Path) -> tuple[float, float]:
    """Start a master, kill it at its first decision; seconds and CPU seconds from its start until then."""
    heard = await client.subscribe(subjects.decision(JOB))
    await client.flush()
    # A first snapshot is written at once, and then not before this many records.
    settings = MasterSettings(nats_url=url, job=JOB, pod=PodName("master"), core_snapshot_records=5000)
    with (folder / "master.log").open("a") as log:
        began_s = time.perf_counter()
        master = subprocess.Popen(
            [sys.executable, "-m", "elasticdl.master.main"], env=os.environ | to_environment(settings), stderr=log
        )
    try:
        while True:
            message = await heard.next_msg(timeout=None)
            if isinstance(codec.decode_envelope(message.data).event, Decided):
                times = psutil.Process(master.pid).cpu_times()
                return time.perf_counter() - began_s, times.user + times.system
    finally:
        await asyncio.sleep(1.0)  # for a core snapshot to be written
        master.kill()
        master.wait()
        await heard.unsubscribe()


async def measure(arguments: argparse.Namespace, url: str, folder: Path) -> None:
    """Write the log, and start masters on it."""
    author = Author(job_spec(arguments.records))
    await (await nats_bus.connect(url, JOB)).close()  # makes the streams
    client = await nats.connect(url)
    began_s = time.perf_counter()
    await publish(client, author, author.begin())
    await publish(client, author, author.go_on(arguments.records - arguments.tail))
    took_s = time.perf_counter() - began_s
    say(f"{author.seq:,} records written in {took_s:.0f} s ({author.seq / took_s:,.0f}/s)")
    bus = await nats_bus.connect(url, JOB)
    data = core_snapshot.encode(author.state)
    say(f"core snapshot: {len(data):,} bytes")
    await publish(client, author, author.go_on(arguments.records), ids=True)
    if arguments.whole:
        await client.request(*author.die("worker-0"))
        took_s, cpu_s = await first_decision(client, url, folder)
        say(f"without a core snapshot: first decision after {took_s:.1f} s ({cpu_s:.1f} s)")
        present = await bus.core_snapshots.read(MASTER)
        after = present.seq if present else 0
    else:
        after = 0
    times = []
    for start in range(arguments.starts):
        # Each start finds the same snapshot and the same rest of the log (and the terms before it).
        after = await bus.core_snapshots.write(MASTER, data, after=after)
        await client.request(*author.die(f"worker-{start + 1}"))
        times.append(await first_decision(client, url, folder))
        present = await bus.core_snapshots.read(MASTER)
        after = present.seq if present else 0
    wall_s, cpu_s = (statistics.median(column) for column in zip(*times, strict=True))
    say(f"with a core snapshot and {arguments.tail:,} records after it, first decision after:")
    say(f"  {wall_s:.2f} s ({cpu_s:.2f} s); all: {', '.join(f'{one:.2f} ({cpu:.2f})' for one, cpu in sorted(times))}")
    await bus.close()
    await client.close()


def say(line: str) -> None:
    """Tell the user at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=3_000_000, help="length of the log")
    parser.add_argument("--tail", type=int, default=4999, help="records after the core snapshot")
    parser.add_argument("--starts", type=int, default=5, help="how many masters are started")
    parser.add_argument("--whole", action="store_true", help="also without a core snapshot")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elasticdl-recovery-") as folder:
        server = NatsServer(Path(folder) / "nats")
        try:
            asyncio.run(measure(arguments, server.start(), Path(folder)))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
