"""What the wire and a ps cost: round trips of frames, and pull + push of a DeepFM-like batch through sockets.

    python benchmarks/wire.py [--seconds 1.0] [--ps 1]

Client and server are two processes on loopback; CPU is what both used. Medians of 5; rates below a factor of 1.3 apart
are equal on a shared machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import numpy as np

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import (
    DenseVariable,
    ModelSignature,
    Optimizer,
    RowInitializer,
    RowTable,
    VariableKind,
)
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.client import WireClient
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.server import Response, WireServer
from elasticdl.worker.ps_client import PsAddress, PsClient, PsDirectory, PushRequest

TOKEN = "benchmark"
RUNS = 5
BATCHES = 1 << 20
PLAN = Plan(
    sources=(Source(uri="memory://x", size_bytes=1, etag="", records=BATCHES),),
    minibatch_size=1,
    minibatches_per_task=BATCHES,
    epochs=1,
    shuffle=Shuffle.NONE,
    seed=1,
)
ROWS, WIDTH, DENSE, VOCABULARY = 7_500, 16, 480_000, 1_000_000
SIGNATURE = ModelSignature(
    dense=(DenseVariable(name="mlp", shape=(DENSE,), kind=VariableKind.TRAINABLE),),
    tables=(
        RowTable(name="wide", width=1, initializer=RowInitializer(distribution="zeros")),
        RowTable(name="deep", width=WIDTH, initializer=RowInitializer(distribution="uniform", low=-0.05, high=0.05)),
    ),
    optimizer=Optimizer(name="adam", learning_rate=0.001),
    seed=1,
)


def serve_echo(pipe: Pipe) -> None:
    """A server that sends every frame back."""
    serve(lambda frame: Response(meta=frame.meta, tensors=frame.tensors), "echo", pipe)


def serve_ps(pipe: Pipe, part: int, ps: int) -> None:
    """A ps without broker and storage."""
    core = PsCore(plan=PLAN, placement=Placement.even(ps), number=part, policy=UpdatePolicy())
    core.start_serving()
    serve(PsHandler(core, Incarnation("ps")), "ps", pipe)


def die(error: BaseException) -> None:
    print(f"the server died: {error!r}")
    os._exit(1)


def serve(handle: Callable[[Frame], Response], identity: str, pipe: Pipe) -> None:
    server = WireServer(handle, token=TOKEN, identity=identity, on_fatal=die)
    server.start()
    pipe.send(server.address)
    while pipe.recv() == "cpu":
        pipe.send(time.process_time())
    server.close()


class Server:
    """A server process and the CPU that it used."""

    def __init__(self, target: Callable[..., None], *arguments: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self._process.start()
        self.address: str = self._pipe.recv()

    def cpu_s(self) -> float:
        self._pipe.send("cpu")
        used: float = self._pipe.recv()
        return used

    def close(self) -> None:
        self._pipe.send("stop")
        self._process.join()


def measure(name: str, bytes_moved: int, act: Callable[[], None], servers: list[Server], seconds: float) -> None:
    """Print the median rate, latency and CPU of an action."""
    act()
    rates, latencies, cpu = [], [], []
    for _ in range(RUNS):
        used_s = time.process_time() + sum(server.cpu_s() for server in servers)
        count, began_s = 0, time.perf_counter()
        while (elapsed_s := time.perf_counter() - began_s) < seconds / RUNS:
            one_s = time.perf_counter()
            act()
            latencies.append(time.perf_counter() - one_s)
            count += 1
        used_s = time.process_time() + sum(server.cpu_s() for server in servers) - used_s
        rates.append(count / elapsed_s)
        cpu.append(used_s / count)
    rate, used = statistics.median(rates), statistics.median(cpu)
    print(
        f"{name:28} {rate:10,.0f}/s {rate * bytes_moved / 1e6:10,.0f} MB/s"
        f"  p50 {statistics.median(latencies) * 1e3:8.3f} ms"
        f"  CPU {used * 1e3:8.3f} ms, {used / bytes_moved * 1e9:6.2f} s/GB"
    )


def frames(seconds: float) -> None:
    server = Server(serve_echo)
    client = WireClient(server.address, token=TOKEN, peer="benchmark", pool=BufferPool())
    for size in (4 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20):
        tensor = np.ones(size // 4, np.float32)
        measure(
            f"echo {size >> 10} KiB",
            2 * size,
            lambda tensor=tensor: client.request(b"", [tensor]).release(),  # type: ignore[misc]
            [server],
            seconds,
        )
    client.close()
    server.close()


def connected(servers: list[Server]) -> PsClient:
    places = {
        PodName(f"ps-{part}"): PsAddress(address=server.address, incarnation=Incarnation("ps"))
        for part, server in enumerate(servers)
    }
    placement = Placement.even(len(servers))
    return PsClient(
        PsDirectory(placement=lambda: placement, resolve=lambda: places),
        token=TOKEN,
        peer="benchmark",
        plan=PLAN.fingerprint,
        signature=SIGNATURE,
    )


def training(seconds: float, ps: int) -> None:
    servers = [Server(serve_ps, part, ps) for part in range(ps)]
    client = connected(servers)
    client.initialise(np.zeros(DENSE, np.float32))
    random = np.random.default_rng(1)
    ids = [np.unique(random.zipf(1.2, 4 * ROWS) % VOCABULARY)[:ROWS].astype(np.int64) for _ in range(16)]
    gradients = [
        {"wide": np.ones((one.size, 1), np.float32), "deep": np.ones((one.size, WIDTH), np.float32)} for one in ids
    ]
    dense = np.ones(DENSE, np.float32)
    position = 0

    def pull() -> None:
        own = ids[position % len(ids)]
        client.pull({"wide": own, "deep": own}).release()

    def push() -> None:
        nonlocal position
        own, rows = ids[position % len(ids)], gradients[position % len(ids)]
        outcome = client.push(
            PushRequest(
                task=TaskId(0),
                batch=position,
                batches=BATCHES,
                records=1,
                checksum=0,
                dense_gradient=dense,
                rows={name: (own, values) for name, values in rows.items()},
            )
        )
        position = outcome.next_batch

    moved = int(np.mean([one.size for one in ids])) * (2 * 8 + 4 * (WIDTH + 1)) + 4 * DENSE
    for _ in ids:
        push()  # tables grow to their size first
    measure(f"pull, {ps} ps", moved, pull, servers, seconds)
    measure(f"push (Adam), {ps} ps", moved, push, servers, seconds)
    client.close()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="per line")
    parser.add_argument("--ps", type=int, default=1, help="parameter servers")
    arguments = parser.parse_args()
    frames(arguments.seconds)
    training(arguments.seconds, arguments.ps)


if __name__ == "__main__":
    main()
