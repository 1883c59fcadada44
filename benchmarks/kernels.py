"""How fast the parameter server's kernels are, beside a plain copy of as many bytes.

    python benchmarks/kernels.py --rows 1000000 --batch 65536 --width 16 32 64
    python benchmarks/kernels.py --min_count 2 --expire_after 1000000
    python benchmarks/kernels.py --batch 7600 --missed 100 --updates 20000

Single thread, CPU time, medians over interleaved rounds. "bound" is what a numpy copy would reach if it moved just the
bytes that the operation must move (ids and index left out); random rows are bound by latency, so a tenth of it is good.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import OPTIMIZERS, Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.tracked_rows import row_store
from elasticdl.shared.model.dedup import sum_rows, unique_inverse
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import DenseVariable, Optimizer, RowInitializer, RowTable, VariableKind

COPY_BYTES = 256 << 20
DENSE = 16 << 20


def seconds(operation: Callable[[], object]) -> float:
    start = time.thread_time()
    operation()
    return time.thread_time() - start


def copy_rate(rounds: int) -> float:
    """Bytes read and written per second by a large numpy copy."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)  # Ones: pages that exist.
    return 2 * COPY_BYTES / float(np.median([seconds(lambda: np.copyto(target, source)) for _ in range(rounds)]))


def batches_of(ids: NDArray[np.int64], batch: int, rounds: int) -> list[NDArray[np.int64]]:
    generator = np.random.default_rng(1)
    return [ids[generator.choice(ids.size, batch, replace=False)] for _ in range(rounds)]


def table_of(width: int, min_count: int, expire_after: int) -> RowTable:
    uniform = RowInitializer(distribution="uniform", low=-0.05, high=0.05)
    return RowTable(name="t", width=width, initializer=uniform, min_count=min_count, expire_after=expire_after)


def measure_rows(table: RowTable, name: str, arguments: argparse.Namespace, bound: float) -> None:
    rows, batch, rounds = arguments.rows, arguments.batch, arguments.rounds
    width, timeline = table.width, Timeline()
    timeline.rates.record(arguments.updates, 0.1)
    timeline.updates[:] = arguments.updates + 1 + arguments.missed
    store = row_store(table, Optimizer(name=name, learning_rate=0.1), 1, timeline)
    ids = np.random.default_rng(0).permutation(np.arange(-rows, rows, 2)) * 2_654_435_761
    gradients = np.random.default_rng(2).normal(size=(batch, width)).astype(np.float32)
    out = np.empty((batch, width), np.float32)
    first = Update(0.1, arguments.updates)
    insert_s = sum(
        seconds(partial(store.push, RowGradients(part, gradients[: part.size]), first))
        for part in np.array_split(ids, -(-rows // batch))
        for _ in range(table.min_count)
    )
    pulls, pushes, pushes_in_cut, checks = [], [], [], []
    for number, part in enumerate(batches_of(ids, batch, rounds)):
        # Rows of an earlier round have not missed as much: with rows beyond rounds x batch they are few.
        update = Update(0.1, arguments.updates + 1 + arguments.missed + number)
        timeline.updates[:] = update.iteration
        pulls.append(seconds(partial(store.pull, part, out)))
        checks.append(seconds(partial(store.check, part, gradients)))
        pushes.append(seconds(partial(store.push, RowGradients(part, gradients), update)))
        with store.cut():
            store.reserve(batch)
            pushes_in_cut.append(seconds(partial(store.push, RowGradients(part, gradients), update)))
    lines = [
        ("pull", pulls, 2 * width),
        ("check", checks, width),
        ("push", pushes, 2 * store.slab_width + width),
        ("push, cut open", pushes_in_cut, 4 * store.slab_width + width),
    ]
    for label, times, floats in lines:
        rate, copy = batch / float(np.median(times)), bound / (4 * floats)
        print(f"{name:8} {width:5} {label:16} {rate / 1e6:8.1f} M rows/s {100 * rate / copy:6.1f} % of bound")
    print(f"{name:8} {width:5} {'push, all new':16} {rows / insert_s / 1e6:8.1f} M rows/s")
    start = time.perf_counter()
    with store.cut() as cut:
        opened = time.perf_counter() - start
        read = seconds(lambda: sum(chunk.nbytes for _, chunk in cut.packed(65536)))
    print(
        f"{name:8} {width:5} {'cut, read whole':16} {rows / read / 1e6:8.1f} M rows/s, opened in {opened * 1e6:.0f} us"
    )


def measure_dense(name: str, rounds: int, bound: float) -> None:
    variable = DenseVariable(name="w", shape=(DENSE,), kind=VariableKind.TRAINABLE)
    store = DenseStore((variable,), Optimizer(name=name, learning_rate=0.1))
    gradient = np.ones(DENSE, np.float32)
    rate = DENSE / float(np.median([seconds(lambda: store.push(gradient, Update(0.1, 3))) for _ in range(rounds)]))
    floats = 2 * len(store.cut().state) + 1
    share = 100 * rate / (bound / (4 * floats))
    print(f"{name:8} {'':5} {'dense push':16} {rate / 1e6:8.0f} M floats/s {share:4.0f} % of bound")


def measure_dedup(batch: int, width: int, rounds: int) -> None:
    generator = np.random.default_rng(3)
    ids = (generator.zipf(1.2, batch) % 1_000_000) * 26 + generator.integers(0, 26, batch)
    gradients = generator.normal(size=(batch, width)).astype(np.float32)
    unique, inverse = unique_inverse(ids)
    find = float(np.median([seconds(lambda: unique_inverse(ids)) for _ in range(rounds)]))
    add = float(np.median([seconds(lambda: sum_rows(inverse, gradients, unique.size)) for _ in range(rounds)]))
    print(f"dedup    {width:5} {batch} ids, {unique.size} unique: {find * 1e3:.2f} ms, sums {add * 1e3:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in the table")
    parser.add_argument("--batch", type=int, default=65_536, help="unique ids per call")
    parser.add_argument("--width", type=int, nargs="+", default=[16], help="floats per row")
    parser.add_argument("--optimizer", nargs="+", default=["adagrad", "adam"], choices=sorted(OPTIMIZERS))
    parser.add_argument("--min_count", type=int, default=1, help="updates until an id gets its row")
    parser.add_argument("--expire_after", type=int, default=0, help="updates after which a row expires; 0: never")
    parser.add_argument("--updates", type=int, default=100, help="updates before all rows were touched")
    parser.add_argument("--missed", type=int, default=0, help="updates that rows have missed since")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    bound = copy_rate(arguments.rounds)
    print(f"numpy copy: {bound / 1e9:.1f} GB/s, read and written")
    for width in arguments.width:
        for name in arguments.optimizer:
            table = table_of(width, arguments.min_count, arguments.expire_after)
            measure_rows(table, name, arguments, bound)
        for batch in (13_312, 106_496):
            measure_dedup(batch, width, arguments.rounds)
    for name in arguments.optimizer:
        measure_dense(name, arguments.rounds, bound)


if __name__ == "__main__":
    main()
