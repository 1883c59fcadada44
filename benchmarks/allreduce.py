"""Time and CPU of an all-reduce between processes of this machine.

    python benchmarks/allreduce.py [--megabytes 1 10 100] [--members 2 3 4] [--seconds 2]

Each member is a process with one thread; they are connected by TCP on the loopback device, as the workers of a job.
``memory``: sums are read where they are, as by workers on one machine. ``tcp``: they go through the sockets, as between
machines. With PyTorch installed, Gloo (PyTorch's CPU backend) is measured as well, in turns. A row has the median and
the least time of an all-reduce, the CPU seconds of all members per GB of the array, and the time of copying the array
once within a process.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from elasticdl.worker.ring.blocks import Block
from elasticdl.worker.ring.collective import Ring

GB = 1e9


def gloo(rank: int, size: int, port: int) -> Callable[[Any], None]:
    """An all-reduce by PyTorch's CPU backend."""
    torch, distributed = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=size)

    def reduce(array: Any) -> None:
        distributed.all_reduce(torch.from_numpy(array))

    return reduce


def connected(rank: int, size: int, parent: Connection) -> Ring:
    """A ring of this process with the other ones; the parent passes on where each of them listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    parent.send(listening.getsockname())
    addresses = parent.recv()
    following = socket.create_connection(addresses[(rank + 1) % size])
    preceding, _ = listening.accept()
    for one in (following, preceding):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.close()
    return Ring(rank, size, following=following, preceding=preceding)


def member(rank: int, size: int, parent: Connection, port: int) -> None:
    """One process: reduces what the parent asks for; answers with seconds and CPU seconds."""
    ring = connected(rank, size, parent)
    reduce: dict[str, Callable[[Any], None]] = {"tcp": ring.all_reduce}
    if port:
        reduce["gloo"] = gloo(rank, size, port)
    while (asked := parent.recv()) is not None:
        name, elements, repeats = asked
        block = Block(4 * elements)
        array = block.bytes.view(np.float32)
        reduce["memory"] = functools.partial(ring.all_reduce, block=block)
        seconds, cpu_s = [], time.process_time()
        for _ in range(repeats):
            array[:] = 1.0
            started_s = time.perf_counter()
            reduce[name](array)
            seconds.append(time.perf_counter() - started_s)
        if not (array == size).all():
            raise SystemExit("the sum is wrong")
        parent.send((seconds, time.process_time() - cpu_s))


def copy_s(elements: int) -> float:
    """Seconds to copy an array within a process."""
    source, target = np.ones(elements, np.float32), np.ones(elements, np.float32)
    seconds = []
    for _ in range(5):
        started_s = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - started_s)
    return sorted(seconds)[2]


def measure(size: int, megabytes: list[int], seconds: float, port: int) -> None:
    """Print a row for each size of the array."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(size)]
    processes = [context.Process(target=member, args=(rank, size, pipes[rank][1], port)) for rank in range(size)]
    for process in processes:
        process.start()
    parents = [pipe[0] for pipe in pipes]
    addresses = [parent.recv() for parent in parents]
    for parent in parents:
        parent.send(addresses)

    def ask(name: str, elements: int, repeats: int) -> tuple[list[float], float]:
        for parent in parents:
            parent.send((name, elements, repeats))
        answers = [parent.recv() for parent in parents]
        return list(map(max, zip(*[answer[0] for answer in answers], strict=True))), sum(a[1] for a in answers)

    for megabyte in megabytes:
        elements = megabyte * 1_000_000 // 4
        for name in ("memory", "tcp", "gloo") if port else ("memory", "tcp"):
            once = sorted(ask(name, elements, 3)[0])[1]
            repeats = max(3, min(500, int(seconds / once)))
            times, cpu_s = ask(name, elements, repeats)
            row = f"{size:7} {megabyte:6} {name:7} {1e3 * sorted(times)[len(times) // 2]:9.2f} {1e3 * min(times):9.2f}"
            row += f" {cpu_s / (repeats * megabyte / 1e3):9.2f} {1e3 * copy_s(elements):9.2f}"
            sys.stdout.write(row + "\n")
            sys.stdout.flush()
    for parent in parents:
        parent.send(None)
    for process in processes:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--members", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    arguments = parser.parse_args()
    has_gloo = importlib.util.find_spec("torch") is not None
    if not has_gloo:
        sys.stdout.write("PyTorch is not installed: Gloo is left out\n")
    sys.stdout.write("members     MB         median ms    min ms  CPU-s/GB   copy ms\n")
    for size in arguments.members:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1] if has_gloo else 0
        measure(size, arguments.megabytes, arguments.seconds, port)


if __name__ == "__main__":
    main()
