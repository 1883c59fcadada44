"""How long pushes wait while a snapshot is cut and written, by the number of dirty bytes.

    python benchmarks/snapshot_pause.py --dirty-mib 1024 --batch 512 --fields 26 --repeats 3

One ps core with one table under Adam and some dense weights, without sockets. One thread pushes as fast as it can,
batches of ``batch`` examples with ``fields`` ids each, drawn by Zipf's law from the table's rows; meanwhile another one
cuts all rows and writes them with the product's own writer, as a ps does. Times are of whole ``PsCore.push`` calls, by
the wall clock, and their CPU, which other processes on the machine disturb less; the half second after the snapshot was
closed is counted to it. Of the slowest pushes the parts are told: CPU in the program and in the system, page faults,
and how often the system took the processor away from a push that did not wait. The store is the local file system (with
its fsync), or memory with ``--memory``.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.uploads import UploadWriter
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import (
    DenseVariable,
    ModelSignature,
    Optimizer,
    RowInitializer,
    RowTable,
    VariableKind,
)
from elasticdl.shared.names import JobId, PodName, TaskId, new_incarnation
from elasticdl.shared.storage import MemoryStore, ObjectStore, open_store, to_uri
from elasticdl.shared.wire.messages import NO_FLOATS, Initialise, Push, TableGradients

WIDTH = 16
DENSE = 200_000
LOAD_ROWS = 1 << 18
BATCHES = 1 << 20
"""In the only task: more than the benchmark pushes."""
SLOWEST = 3
AFTER_S = 0.5
"""Seconds after the end of a snapshot that are still counted to it."""


def spec_of(storage: str, batch: int) -> JobSpec:
    records = BATCHES * batch
    plan = Plan(
        sources=(Source(uri="memory://data", size_bytes=1, etag="1", records=records),),
        minibatch_size=batch,
        minibatches_per_task=BATCHES,
        epochs=1,
        shuffle=Shuffle.NONE,
        seed=1,
    )
    return JobSpec(
        job=JobId("benchmark-1"),
        created_s=0.0,
        plan=plan,
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="model.py", symbol="model"),
        storage=storage,
    )


def core_of(spec: JobSpec, dirty_bytes: int) -> PsCore:
    """A ps that has learned this many bytes of rows since its last snapshot."""
    signature = ModelSignature(
        dense=(DenseVariable(name="kernel", shape=(DENSE,), kind=VariableKind.TRAINABLE),),
        tables=(RowTable(name="rows", width=WIDTH, initializer=RowInitializer(distribution="zeros")),),
        optimizer=Optimizer(name="adam", learning_rate=0.001),
        seed=1,
    )
    core = PsCore(plan=spec.plan, placement=Placement.even(1), number=0, policy=UpdatePolicy())
    core.initialise(
        Initialise(
            plan=spec.plan.fingerprint,
            signature=signature.to_json(),
            placement_version=1,
            dense=np.zeros(DENSE, np.float32),
        )
    )
    core.start_serving()
    assert core.shard is not None
    (store,) = core.shard.tables
    rows = dirty_bytes // (4 * store.slab_width)
    for start in range(0, rows, LOAD_ROWS):
        ids = np.arange(start, min(start + LOAD_ROWS, rows), dtype=np.int64)
        store.load(ids, np.zeros((ids.size, store.slab_width), np.float32))
    return core


def pushes(spec: JobSpec, rows: int, batch: int, fields: int) -> Iterator[Push]:
    """Batch after batch of one endless task."""
    generator = np.random.default_rng(1)
    task = TaskId(0)
    batches = spec.plan.batches_of(task)
    dense = generator.normal(size=DENSE).astype(np.float32)
    drawn: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    for _ in range(64):
        ids = np.unique(generator.zipf(1.05, batch * fields) * 2_654_435_761 % rows).astype(np.int64)
        drawn.append((ids, generator.normal(size=(ids.size, WIDTH)).astype(np.float32)))
    number = 0
    while True:
        ids, gradients = drawn[number % len(drawn)]
        yield Push(
            plan=spec.plan.fingerprint,
            placement_version=1,
            task=task,
            batch=number,
            batches=batches,
            records=batch,
            checksum=1,
            empty=False,
            dense=dense,
            statistics=NO_FLOATS,
            tables=(TableGradients(table=0, ids=(ids + number * 7919) % rows, gradients=gradients),),
        )
        number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the system says about one push."""

    user_s: float
    system_s: float
    faults: int
    preempted: int


class Pusher:
    """Pushes for as long as it is let; times of each push by whether a snapshot was under way."""

    def __init__(self, core: PsCore, of: Iterator[Push]) -> None:
        self.core, self.of = core, of
        self.began_s: list[float] = []
        self.took_s: list[float] = []
        self.cpu_s: list[float] = []
        self.parts: list[Parts] = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.ends.is_set():
            push = next(self.of)
            before = resource.getrusage(resource.RUSAGE_THREAD)
            began_s, cpu_s = time.perf_counter(), time.thread_time()
            self.core.push(push)
            self.cpu_s.append(time.thread_time() - cpu_s)
            self.took_s.append(time.perf_counter() - began_s)
            self.began_s.append(began_s)
            after = resource.getrusage(resource.RUSAGE_THREAD)
            self.parts.append(
                Parts(
                    user_s=after.ru_utime - before.ru_utime,
                    system_s=after.ru_stime - before.ru_stime,
                    faults=after.ru_minflt - before.ru_minflt,
                    preempted=after.ru_nivcsw - before.ru_nivcsw,
                )
            )

    def between(self, start_s: float, end_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64], list[Parts]]:
        """Seconds by the wall clock and of CPU of the pushes that overlap with a time, and what they consist of."""
        began, took = np.array(self.began_s), np.array(self.took_s)
        inside = (began + took >= start_s) & (began < end_s)
        return took[inside], np.array(self.cpu_s)[inside], [self.parts[number] for number in np.flatnonzero(inside)]


@contextmanager
def storage(memory: bool) -> Iterator[tuple[ObjectStore, str]]:
    if memory:
        yield MemoryStore(), "memory://storage"
        return
    with tempfile.TemporaryDirectory() as folder:
        uri = to_uri(Path(folder))
        yield open_store(uri), uri


def tell(what: str, took: NDArray[np.float64], cpu: NDArray[np.float64], parts: list[Parts]) -> None:
    if not took.size:
        print(f"  pushes {what}: none was finished; measure for longer")
        return
    ms, cpu_ms = 1e3 * took, 1e3 * cpu
    print(
        f"  pushes {what}: {took.size:6d}, median {np.median(ms):6.2f} ms, p99 {np.percentile(ms, 99):6.2f} ms, "
        f"max {ms.max():7.2f} ms, over 100 ms: {int((ms > 100).sum())}; "
        f"CPU median {np.median(cpu_ms):.2f} ms, max {cpu_ms.max():.2f} ms"
    )
    for number in np.argsort(-ms)[:SLOWEST]:
        one = parts[number]
        print(
            f"      {ms[number]:7.2f} ms: CPU {cpu_ms[number]:6.2f} ms (user {1e3 * one.user_s:.0f}, system "
            f"{1e3 * one.system_s:.0f}), {one.faults} page faults, {one.preempted} times preempted"
        )


def measure(arguments: argparse.Namespace) -> None:
    with storage(arguments.memory) as (store, uri):
        spec = spec_of(uri, arguments.batch)
        core = core_of(spec, arguments.dirty_mib << 20)
        assert core.shard is not None
        rows = core.shard.tables[0].rows
        pusher = Pusher(core, pushes(spec, rows, arguments.batch, arguments.fields))
        writer = SnapshotWriter(spec, PodName("ps-0"), new_incarnation())
        uploads = UploadWriter(store)
        gc.collect()
        pusher.thread.start()
        time.sleep(1.0)  # Compiled kernels, warm caches.
        quiet_s = time.perf_counter()
        time.sleep(arguments.quiet_s)
        begun_s = time.perf_counter()
        cut = core.cut(dirty_only=False, flush=False)
        cut_s = time.perf_counter() - begun_s
        written = uploads.write(writer.upload(core, cut, number=0))
        written_s = time.perf_counter()
        cut.close(finished=True)
        closed_s = time.perf_counter()
        time.sleep(AFTER_S)
        pusher.ends.set()
        pusher.thread.join()
        mib_per_s = written.size_bytes / (written_s - begun_s) / (1 << 20)
        print(
            f"{rows:,} rows, {written.size_bytes / (1 << 20):,.0f} MiB written in {written_s - begun_s:.2f} s "
            f"({mib_per_s:,.0f} MiB/s); cut {1e3 * cut_s:.1f} ms, close {1e3 * (closed_s - written_s):.1f} ms; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        tell("without a snapshot", *pusher.between(quiet_s, begun_s))
        tell("beside a snapshot ", *pusher.between(begun_s, closed_s + AFTER_S))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dirty-mib", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--fields", type=int, default=26)
    parser.add_argument("--quiet-s", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="keep the snapshot in memory")
    arguments = parser.parse_args()
    for _ in range(arguments.repeats):
        measure(arguments)


if __name__ == "__main__":
    main()
