"""Measures indexing one large file with one process, and with as many as the machine has cores.

    python benchmarks/large_file.py FOLDER [--records=5000000]

It writes a CSV file and a TFRecord file to FOLDER, and compares the indices.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.shared.data import ReaderOptions, ScannedSource, discover, scan_sources
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.storage import open_store

BLOCK = 50_000
COLUMNS = 40


def measured(name: str, scan: Callable[[], Iterable[ScannedSource]]) -> bytes:
    """Print seconds and CPU seconds, with those of child processes; returns the index."""
    started_s, cpu_s = time.perf_counter(), _cpu_s()
    (scanned,) = scan()
    print(f"{name:40} {time.perf_counter() - started_s:6.1f} s {_cpu_s() - cpu_s:6.1f} s CPU", flush=True)
    return to_bytes([scanned.index])


def _cpu_s() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=5_000_000)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(0).integers(0, 100_000, (BLOCK, COLUMNS)).tolist()
    lines = "".join(",".join(map(str, row)) + "\n" for row in rows)
    with (flags.folder / "large.csv").open("w") as file:
        file.write(",".join(f"c{number}" for number in range(COLUMNS)) + "\n")
        file.writelines(lines for _ in range(flags.records // BLOCK))
    write_records(flags.folder / "large.tfrecord", (b"x" * 200 for _ in range(flags.records)))
    store, options = open_store(str(flags.folder)), ReaderOptions(csv_delimiter=",")
    for name in ("large.csv", "large.tfrecord"):
        objects = discover(str(flags.folder / name), store)
        for _ in range(2):
            one = measured(f"{name}, one process", partial(scan_sources, store, objects, options))
            many = measured(f"{name}, ranges", partial(scan_in_parallel, store, objects, options))
            assert one == many


if __name__ == "__main__":
    main()
