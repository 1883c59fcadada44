"""What reading costs: the index, and tasks of 512 records in the order of a shuffle, for each format.

    python benchmarks/reading.py [--formats csv,parquet] [--shuffles tasks,global] [--records 200000]

Writes the same numbers in each format into a temporary folder, two files each, and prints microseconds of CPU for each
record. Images are files of 3 KB.
"""

from __future__ import annotations

import argparse
import gzip
import io
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from elasticdl.shared.data import Reader, ReaderOptions, plan_sources
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.storage import open_store
from elasticdl.shared.storage.tfrecord_frame import frame

COLUMNS = 40
ROW_GROUP = 10_000
FILES = 2
IMAGE = b"\xff\xd8\xff" + bytes(3000)
IMAGES_MAX = 20_000


def _table(records: int) -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table({f"c{place}": random.integers(0, 1000, records) for place in range(COLUMNS)})


def _csv(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.csv.write_csv(table, file)
    return file.getvalue()


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file, row_group_size=ROW_GROUP)
    return file.getvalue()


def _matrix(table: pa.Table) -> np.ndarray:
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def _npy(table: pa.Table) -> bytes:
    file = io.BytesIO()
    np.save(file, _matrix(table))
    return file.getvalue()


def _npz(table: pa.Table) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=_matrix(table))
    return file.getvalue()


def _tfrecord(table: pa.Table) -> bytes:
    return b"".join(frame(row.tobytes()) for row in _matrix(table))


def _recordio(table: pa.Table) -> bytes:
    chunks = []
    for start in range(0, table.num_rows, 1000):
        rows = [row.tobytes() for row in _matrix(table.slice(start, 1000))]
        data = b"".join(struct.pack("<I", len(row)) + row for row in rows)
        chunks.append(struct.pack("<5I", 0x01020304, zlib.crc32(data), 0, len(data), len(rows)) + data)
    return b"".join(chunks)


FORMATS: dict[str, tuple[str, Callable[[pa.Table], bytes]]] = {
    "csv": ("csv", _csv),
    "csv-gzip": ("csv.gz", lambda table: gzip.compress(_csv(table), 1)),
    "tfrecord": ("tfrecord", _tfrecord),
    "parquet": ("parquet", _parquet),
    "npy": ("npy", _npy),
    "npz-compressed": ("npz", _npz),
    "recordio": ("recordio", _recordio),
}


def main() -> None:
    """Measure."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--formats", default=",".join([*FORMATS, "images"]))
    arguments.add_argument("--shuffles", default="tasks,global")
    arguments.add_argument("--records", type=int, default=200_000)
    given = arguments.parse_args()
    table = _table(given.records // FILES)
    for name in given.formats.split(","):
        with tempfile.TemporaryDirectory() as folder:
            if name == "images":
                for number in range(min(given.records, IMAGES_MAX)):
                    path = Path(folder, f"class-{number % 10}", f"{number}.jpg")
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(IMAGE + struct.pack("<I", number))
            else:
                suffix, write = FORMATS[name]
                for number in range(FILES):
                    Path(folder, f"{number}.{suffix}").write_bytes(write(table))
            _measure(name, folder, [Shuffle(each) for each in given.shuffles.split(",")])


def _measure(name: str, folder: str, shuffles: list[Shuffle]) -> None:
    store = open_store(folder)
    begin = time.process_time()
    data = plan_sources(folder, ReaderOptions(), store)
    records = sum(source.records for source in data.sources)
    costs = [f"index {(time.process_time() - begin) / records * 1e6:.2f}"]
    for shuffle in shuffles:
        plan = Plan(sources=data.sources, minibatch_size=32, minibatches_per_task=16, epochs=1, shuffle=shuffle, seed=1)
        reader = Reader(store=store, sources=data.sources, schema=data.schema, index=data.indices.__getitem__)
        begin = time.process_time()
        for task in plan.task_ids():
            block = reader.read_all(plan.shards(task))
            assert len(block) == plan.task_size(task)
            assert len(block.columns) >= 0
        costs.append(f"{shuffle.value} {(time.process_time() - begin) / records * 1e6:.2f}")
    print(f"{name}: {', '.join(costs)} µs of CPU per record", flush=True)


if __name__ == "__main__":
    main()
