"""How much memory an export with tables in Parquet takes, and a model that is loaded from it.

    python benchmarks/export_memory.py [--mib 64 512 2048] [--width 16]

For each size a process of its own writes a table of this size as a snapshot, with as many floats for a slot of the
optimizer in each row. Then three processes, one after the other, export it as a worker does at the end of a job,
rewrite the export as a job does that starts from it, and look up 100 batches of 10,000 random ids as
``elasticdl.layers.load_model`` does. For each: seconds, CPU seconds, and the peak of the memory that was not there
before, without and with mapped files, which the system drops when it needs the memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from elasticdl.shared.exported.lookup import open_tables
from elasticdl.shared.exported.reading import read_export, read_table
from elasticdl.shared.exported.writing import TablesExport
from elasticdl.shared.model.initial_weights import Floats, Ids, WeightTable, write_weights
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.model.signature import ModelSignature, Optimizer, RowInitializer, RowTable
from elasticdl.shared.storage import open_store, to_uri

_CHUNK_ROWS = 1 << 16
_MIB = 1 << 20


def _signature(width: int) -> ModelSignature:
    table = RowTable(name="table", width=width, initializer=RowInitializer(distribution="zeros"))
    return ModelSignature(dense=(), tables=(table,), optimizer=Optimizer(name="sgd", learning_rate=0.0), seed=0)


def _snapshot(folder: Path, rows: int, width: int) -> None:
    """A snapshot whose rows have ``width`` floats of a slot behind their weights."""

    def chunks() -> Iterator[tuple[Ids, Floats]]:
        random = np.random.default_rng(0)
        for start in range(0, rows, _CHUNK_ROWS):
            ids = np.arange(start, min(start + _CHUNK_ROWS, rows), dtype=np.int64)
            yield ids * 7919, random.random((ids.size, 2 * width), np.float32)

    storage = to_uri(folder)
    table = WeightTable(rows=0, width=2 * width, chunks=chunks)
    (folder / "manifest").write_text(write_weights(open_store(storage), storage, {}, {"table": table}))


def _export(folder: Path, width: int) -> None:
    TablesExport(
        job="benchmark",
        signature=_signature(width),
        dense=np.empty(0, np.float32),
        parts=[((folder / "manifest").read_text(), ALL)],
        snapshots=open_store(to_uri(folder)),
        adapted=(),
        write_model=Path.touch,
    ).write(to_uri(folder / "out"))


def _rewrite(folder: Path, width: int) -> None:
    out = to_uri(folder / "out")
    table = WeightTable(rows=0, width=width, chunks=partial(read_table, out, read_export(out).tables[0], width))
    storage = to_uri(folder / "job")
    write_weights(open_store(storage), storage, {}, {"table": table})


def _lookup(folder: Path, rows: int) -> None:
    out = to_uri(folder / "out")
    table = open_tables(out, read_export(out), folder / "cache")["table"]
    random = np.random.default_rng(1)
    for _ in range(100):
        found = table.rows(random.integers(0, rows, 10_000) * 7919)
        assert found.all(axis=1).any()


def _measured(what: str, run: Callable[[], None]) -> None:
    """Run in a process of its own, and print what it took."""
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    me, stop = psutil.Process(), threading.Event()
    before = me.memory_info()
    private, total = 0, 0

    def watch() -> None:
        nonlocal private, total
        while not stop.wait(0.01):
            now = me.memory_info()
            total = max(total, now.rss - before.rss)
            private = max(private, now.rss - now.shared - before.rss + before.shared)

    thread = threading.Thread(target=watch)
    thread.start()
    started_s = time.perf_counter()
    run()
    seconds = time.perf_counter() - started_s
    stop.set()
    thread.join()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = usage.ru_utime + usage.ru_stime
    print(
        f"  {what:8} {seconds:6.1f} s {cpu_s:6.1f} s CPU {private / _MIB:6.0f} MiB, with files {total / _MIB:6.0f} MiB"
    )
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument("--width", type=int, default=16)
    arguments = parser.parse_args()
    for mib in arguments.mib:
        rows = mib * _MIB // (4 * arguments.width)
        print(f"table of {mib:,} MiB: {rows:,} rows x {arguments.width}")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _measured("snapshot", partial(_snapshot, folder, rows, arguments.width))
            _measured("export", partial(_export, folder, arguments.width))
            _measured("rewrite", partial(_rewrite, folder, arguments.width))
            _measured("lookup", partial(_lookup, folder, rows))


if __name__ == "__main__":
    main()
