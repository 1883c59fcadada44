"""Measures reading a data set from object storage with and without the cache: requests, bytes and seconds per epoch.

    python -m benchmarks.object_storage [--latency_ms=20] [--records=100000]

It starts the S3 server of the tests, which answers at once. ``--latency_ms`` delays each request, as a network does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.contract.servers.s3 import s3_server

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage.cache import CachedStore, CacheUsage, DiskCache
from elasticdl.shared.storage.cache.cached_store import MEMORY_BYTES_MAX
from elasticdl.shared.storage.s3_store import S3Store

FILES = 8
DISK_MEMORY = 4 << 20


class Delayed(S3Store):
    """Counts requests, and delays them."""

    latency_s = 0.0
    requests = 0
    fetched_bytes = 0

    def _attempt(self, uri, request):  # type: ignore[no-untyped-def]
        type(self).requests += 1
        time.sleep(self.latency_s)
        result = super()._attempt(uri, request)
        if isinstance(result, bytes):
            type(self).fetched_bytes += len(result)
        return result


def csv(records: int) -> bytes:
    """A file of 40 columns, some 250 bytes per record."""
    values = np.random.default_rng(0).integers(0, 100_000, (records, 40))
    names = ",".join(f"c{number}" for number in range(40))
    return "\n".join([names, *(",".join(map(str, row)) for row in values.tolist())]).encode()


@contextmanager
def measured(name: str) -> Iterator[None]:
    """Print what reading has cost."""
    requests, size, started_s = Delayed.requests, Delayed.fetched_bytes, time.perf_counter()
    cpu_s = time.process_time()
    yield
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    fetched = (Delayed.fetched_bytes - size) / 1e6
    print(f"{name:40} {Delayed.requests - requests:6} requests {fetched:8.1f} MB {took_s:6.2f} s {cpu_s:6.2f} s CPU")


def read_epoch(reader: Reader, plan: Plan, epoch: int, *, ahead: int) -> None:
    """Read the tasks of an epoch, each with those that a worker takes with it."""
    tasks = range(epoch * plan.tasks_per_epoch, (epoch + 1) * plan.tasks_per_epoch)
    for task in tasks:
        if ahead and (task - tasks.start) % ahead == 0:
            for other in range(task, min(task + ahead, tasks.stop)):
                reader.prefetch(plan.shards(TaskId(other)))
        reader.read_all(plan.shards(TaskId(task)))


def compare(store: Delayed, data: PlannedData, shuffle: Shuffle, folder: Path) -> None:
    """Two epochs without the cache, and with it."""
    plan = Plan(sources=data.sources, epochs=2, shuffle=shuffle, seed=1, minibatch_size=64, minibatches_per_task=8)
    facts = {"sources": data.sources, "schema": data.schema, "index": lambda number: data.indices[number]}
    for name, cache in (("no cache", None), ("memory", 0), ("disk", 1 << 30)):
        if cache is None:
            reader = Reader(store=store, **facts)  # type: ignore[arg-type]
        else:
            disk = DiskCache(folder / shuffle.name, cache, free_share_min=0.0) if cache else None
            # Little memory where the disk is measured: the data of a real job does not fit into it.
            cached = CachedStore(store, disk, CacheUsage(), memory_bytes_max=DISK_MEMORY if disk else MEMORY_BYTES_MAX)
            reader = Reader(store=cached, prefetch=cached.prefetch, **facts)  # type: ignore[arg-type]
        for epoch in (0, 1):
            with measured(f"{shuffle.name.lower()}, {name}, epoch {epoch + 1}"):
                read_epoch(reader, plan, epoch, ahead=0 if cache is None else 2)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency_ms", type=float, default=20.0)
    parser.add_argument("--records", type=int, default=100_000)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name)) as server:
        if server is None:
            raise SystemExit("no S3 server on this machine: make s3-server")
        server.make_bucket("benchmark")
        store = Delayed(server.settings())
        content = csv(flags.records // FILES)
        for number in range(FILES):
            store.write(f"s3://benchmark/data/{number}.csv", content)
        data = plan_sources("s3://benchmark/data", ReaderOptions(), store)
        print(f"{FILES} files, {FILES * len(content) / 1e6:.1f} MB; {flags.latency_ms:g} ms for each request")
        Delayed.latency_s = flags.latency_ms / 1e3
        for shuffle in (Shuffle.RECORDS, Shuffle.GLOBAL):
            compare(store, data, shuffle, Path(name) / "cache")


if __name__ == "__main__":
    main()
