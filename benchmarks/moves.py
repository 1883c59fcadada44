"""How long the rows of a group wait while the group moves from one ps to another, and what they wait for.

    python benchmarks/moves.py [--state-mib 512] [--pushes-per-s 50] [--repeats 3] [--hot]

Two ps processes with a nats-server between them; the benchmark is the master, with the rules of the master's own core,
and a worker, with the worker's own client. The first ps learns ``state-mib`` MiB of rows under Adam, then half of the
partitions move to the second one while the worker pushes batches of 512 examples with 26 ids each, every batch other
rows (``--hot``: always drawn from the same distribution, by Zipf's law, so that most of a batch are rows of the last
one). After ``copies``, the donor freezes. The pause is the time between two absorbed pushes with the freeze in between;
its parts are: until the donor's snapshot is on the log, until the recipient holds what is in it, until the version is
published, until a push is absorbed by that version. CPU is what both ps used from freeze to version.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import structlog

from elasticdl.master.core.moves.apply import is_enough
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.messages.commands import Command, HoldGroup, TakeSnapshot
from elasticdl.shared.messages.events import (
    Envelope,
    GroupHeld,
    JobSubmitted,
    ModelInitialised,
    PsStarted,
    SnapshotTaken,
)
from elasticdl.shared.model.placement import Placement, Ranges, encode_placement
from elasticdl.shared.model.signature import (
    DenseVariable,
    ModelSignature,
    Optimizer,
    RowInitializer,
    RowTable,
    VariableKind,
)
from elasticdl.shared.names import Incarnation, JobId, PodName, Service, TaskId
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.settings import PsSettings, to_environment
from elasticdl.shared.storage import to_uri
from elasticdl.worker.ps_client import PsAddress, PsClient, PsDirectory, PushRequest

JOB = JobId("moves-1")
TOKEN = "token"
WIDTH, SLOTS = 16, 2
ROW_BYTES = 4 * WIDTH * (1 + SLOTS)
DENSE = 200_000
BATCH, FIELDS = 512, 26
BATCHES = 1 << 20
LEARN_ROWS = 1 << 17
HALF: Ranges = ((128, 256),)
DONOR, RECIPIENT = PodName("ps-0"), PodName("ps-1")
SIGNATURE = ModelSignature(
    dense=(DenseVariable(name="kernel", shape=(DENSE,), kind=VariableKind.TRAINABLE),),
    tables=(RowTable(name="rows", width=WIDTH, initializer=RowInitializer(distribution="zeros")),),
    optimizer=Optimizer(name="adam", learning_rate=0.001),
    seed=1,
)


def spec_of(storage: str) -> JobSpec:
    """A job of one endless task, which takes no snapshots by the clock."""
    source = Source(uri="memory://data", size_bytes=1, etag="1", records=BATCHES * BATCH)
    plan = Plan(
        sources=(source,),
        minibatch_size=BATCH,
        minibatches_per_task=BATCHES,
        epochs=1,
        shuffle=Shuffle.NONE,
        seed=1,
    )
    return JobSpec(
        job=JOB,
        created_s=0.0,
        plan=plan,
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="model.py", symbol="model"),
        storage=storage,
        snapshot_interval_s=0.0,
    )


@dataclass(slots=True)
class Job:
    """A job without master and workers, as seen by the benchmark, which plays both."""

    spec: JobSpec
    bus: Bus
    loop: LoopThread
    placement: Placement = field(default_factory=lambda: Placement.even(1))
    addresses: dict[PodName, PsAddress] = field(default_factory=dict)
    events: list[tuple[float, Envelope]] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    async def follow(self) -> None:
        """Note events, and when they were received."""
        async for record in self.bus.log.read(0):
            envelope = record.envelope
            if isinstance(envelope.event, PsStarted):
                self.addresses[envelope.name] = PsAddress(
                    address=envelope.event.address, incarnation=envelope.incarnation
                )
            with self.news:
                self.events.append((time.perf_counter(), envelope))
                self.news.notify_all()

    def await_event(self, fits: Callable[[Envelope], bool]) -> tuple[float, Envelope]:
        """The first event that fits, and when it was received."""
        with self.news:
            while True:
                for heard_s, envelope in self.events:
                    if fits(envelope):
                        return heard_s, envelope
                if not self.news.wait(600.0):
                    raise SystemExit("a ps has not answered for ten minutes")

    def order(self, ps: PodName, command: Command) -> None:
        self.loop.call(self.bus.signals.order(ps, command, "benchmark"))

    def publish(self, placement: Placement) -> None:
        """As the master does it."""
        self.loop.call(self._publish(placement))
        self.placement = placement

    async def _publish(self, placement: Placement) -> None:
        entry = await self.bus.registers.read(PLACEMENT)
        await self.bus.registers.write(PLACEMENT, encode_placement(placement), after=entry.seq if entry else 0)

    def client(self) -> PsClient:
        return PsClient(
            PsDirectory(placement=lambda: self.placement, resolve=lambda: self.addresses),
            token=TOKEN,
            peer="benchmark",
            plan=self.spec.plan.fingerprint,
            signature=SIGNATURE,
        )


class Worker:
    """Pushes batch after batch at a rate, and notes when each was absorbed and by which version."""

    def __init__(self, client: PsClient, rows: int, *, pushes_per_s: float, hot: bool) -> None:
        self._client, self._rows, self._hot = client, rows, hot
        self._interval_s = 1.0 / pushes_per_s
        self._batch = 0
        self._ends = threading.Event()
        self._dense = np.zeros(DENSE, np.float32)
        self.absorbed: list[tuple[float, int]] = []
        self.thread = threading.Thread(target=self._run)

    def learn(self) -> None:
        """Have every row stored."""
        for start in range(0, self._rows, LEARN_ROWS):
            ids = np.arange(start, min(start + LEARN_ROWS, self._rows), dtype=np.int64)
            self._push(ids, np.ones((ids.size, WIDTH), np.float32))

    def end(self) -> None:
        self._ends.set()
        self.thread.join()

    def _run(self) -> None:
        generator = np.random.default_rng(1)
        drawn = []
        for _ in range(64):
            ids = generator.zipf(1.05, BATCH * FIELDS) * 2_654_435_761 % self._rows
            drawn.append(np.unique(ids).astype(np.int64))
        gradients = generator.normal(size=(BATCH * FIELDS, WIDTH)).astype(np.float32)
        due_s = time.perf_counter()
        while not self._ends.is_set():
            ids = drawn[self._batch % len(drawn)]
            if not self._hot:
                ids = (ids + self._batch * 7919) % self._rows
            self._push(ids, gradients[: ids.size])
            due_s = max(due_s + self._interval_s, time.perf_counter() - 1.0)
            time.sleep(max(0.0, due_s - time.perf_counter()))

    def _push(self, ids: np.ndarray, gradients: np.ndarray) -> None:
        outcome = self._client.push(
            PushRequest(
                task=TaskId(0),
                batch=self._batch,
                batches=BATCHES,
                records=BATCH,
                checksum=1,
                dense_gradient=self._dense,
                rows={"rows": (ids, gradients)},
            )
        )
        if outcome.next_batch != self._batch + 1 or outcome.not_finite:
            raise SystemExit(f"batch {self._batch} was answered {outcome}")
        self._batch += 1
        self.absorbed.append((time.perf_counter(), outcome.placement_version))


class Mover:
    """Does what the master does about a move, and takes the times."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._requests = 0

    def snapshot(self, move: int, *, freeze: bool) -> tuple[float, SnapshotTaken]:
        self._requests += 1
        request = self._requests
        order = TakeSnapshot(
            ps=DONOR,
            request=request,
            reason="move",
            move=move,
            freeze=freeze,
            version=move - 1,
            recipient=RECIPIENT,
            partitions=HALF,
        )
        self._job.order(DONOR, order)
        heard_s, envelope = self._job.await_event(
            lambda one: isinstance(one.event, SnapshotTaken) and one.event.request == request
        )
        assert isinstance(envelope.event, SnapshotTaken)
        return heard_s, envelope.event

    def hold(self, move: int, manifest: str) -> float:
        order = HoldGroup(ps=RECIPIENT, move=move, partitions=HALF, manifest=manifest, donor=DONOR, version=move - 1)
        self._job.order(RECIPIENT, order)
        heard_s, envelope = self._job.await_event(
            lambda one: isinstance(one.event, GroupHeld) and one.event.manifest == manifest
        )
        assert isinstance(envelope.event, GroupHeld)
        if envelope.event.failure:
            raise SystemExit(envelope.event.failure)
        return heard_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """One move: bytes, and seconds."""

    moved_bytes: int
    copies: int
    tail_bytes: int
    snapshot_s: float
    held_s: float
    published_s: float
    absorbed_s: float
    pause_s: float
    cpu_s: float
    copying_s: float


def move(job: Job, worker: Worker, ps: Mapping[PodName, psutil.Process], moved_bytes: int) -> Times:
    mover, number = Mover(job), job.placement.version + 1
    began_s = time.perf_counter()
    before_bytes = 0
    for copies in itertools.count(1):
        _, taken = mover.snapshot(number, freeze=False)
        mover.hold(number, taken.manifest)
        if is_enough(copies, taken.size_bytes, before_bytes):
            break
        before_bytes = taken.size_bytes
    cpu_s = -cpu_of(ps)
    frozen_s = time.perf_counter()
    snapshot_s, taken = mover.snapshot(number, freeze=True)
    held_s = mover.hold(number, taken.manifest)
    cpu_s += cpu_of(ps)
    job.publish(job.placement.moved(HALF, to=1, version=number))
    published_s = time.perf_counter()
    while not worker.absorbed or worker.absorbed[-1][1] < number:
        time.sleep(0.001)
    last_s = max(absorbed_s for absorbed_s, version in worker.absorbed if version < number)
    first_s = min(absorbed_s for absorbed_s, version in worker.absorbed if version == number)
    return Times(
        moved_bytes=moved_bytes,
        copies=copies,
        tail_bytes=taken.size_bytes,
        snapshot_s=snapshot_s - frozen_s,
        held_s=held_s - snapshot_s,
        published_s=published_s - held_s,
        absorbed_s=first_s - published_s,
        pause_s=first_s - last_s,
        cpu_s=cpu_s,
        copying_s=frozen_s - began_s,
    )


def cpu_of(ps: Mapping[PodName, psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in ps.values())


@contextmanager
def ps_process(name: PodName, url: str, log: Path) -> Iterator[psutil.Process]:
    settings = PsSettings(nats_url=url, job=JOB, pod=name, token=TOKEN)
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "elasticdl.ps.main"], env=os.environ | to_environment(settings), stderr=errors
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def measure(arguments: argparse.Namespace, folder: Path) -> Times:
    """One job with one move."""
    with ExitStack() as stack:
        server = NatsServer(folder / "nats")
        stack.callback(server.stop)
        url = server.start()
        loop = LoopThread()
        stack.callback(loop.stop)
        bus = loop.call(nats_bus.connect(url, JOB))
        stack.callback(lambda: loop.call(bus.close(), timeout_s=5.0))
        job = Job(spec_of(to_uri(folder / "storage")), bus, loop)
        envelopes = EnvelopeFactory(
            service=Service.LAUNCHER, name=PodName("launcher"), incarnation=Incarnation("0"), clock=SystemClock()
        )
        loop.call(bus.log.append(envelopes.envelope(JobSubmitted(spec=job.spec), cause="")))
        loop.spawn(job.follow())
        ps = {DONOR: stack.enter_context(ps_process(DONOR, url, folder / "ps.log"))}
        job.await_event(lambda one: isinstance(one.event, PsStarted) and one.name == DONOR)
        client = job.client()
        stack.callback(client.close)
        client.initialise(np.zeros(DENSE, np.float32))
        job.await_event(lambda one: isinstance(one.event, ModelInitialised))
        rows = (arguments.state_mib << 20) // ROW_BYTES
        worker = Worker(client, rows, pushes_per_s=arguments.pushes_per_s, hot=arguments.hot)
        worker.learn()
        ps[RECIPIENT] = stack.enter_context(ps_process(RECIPIENT, url, folder / "ps.log"))
        job.await_event(lambda one: isinstance(one.event, PsStarted) and one.name == RECIPIENT)
        worker.thread.start()
        stack.callback(worker.end)
        time.sleep(1.0)
        return move(job, worker, ps, rows * ROW_BYTES // 2)


def tell(times: Times) -> None:
    gib = times.moved_bytes / (1 << 30)
    sys.stdout.write(
        f"{times.moved_bytes >> 20} MiB moved; {times.copies} copies in {times.copying_s:.1f} s, "
        f"then {times.tail_bytes / (1 << 20):.0f} MiB frozen; pause {times.pause_s:.2f} s = "
        f"{times.pause_s / gib:.2f} s per GiB moved: snapshot {times.snapshot_s:.2f}, held {times.held_s:.2f}, "
        f"published {times.published_s:.3f}, absorbed {times.absorbed_s:.2f} s; CPU {times.cpu_s:.2f} s = "
        f"{times.cpu_s / gib:.2f} per GiB; load {os.getloadavg()[0]:.1f}\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-mib", type=int, default=512)
    parser.add_argument("--pushes-per-s", type=float, default=50.0)
    parser.add_argument("--hot", action="store_true", help="most of a batch are rows of the batches before")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory(prefix="elasticdl-moves-") as folder:
            tell(measure(arguments, Path(folder)))


if __name__ == "__main__":
    main()
