"""Time and CPU of an all-reduce between processes of this machine, beside Gloo, in turns.

    python benchmarks/allreduce.py [--gloo PYTHON] [--megabytes 1 10 100] [--members 2 3 4] [--rounds 7] [--seconds 0.3]
    python benchmarks/allreduce.py --segments --megabytes 0.004 0.016 0.032

Each member is a process with one thread; they are connected by TCP on the loopback device, as the workers of a job.
``memory``: sums are read where they are, as by workers on one machine. ``tcp``: they go through the sockets, as between
machines. ``segments``: the same, but small arrays are added up in segments, too. ``gloo``: PyTorch's CPU backend, in
processes of PYTHON, an interpreter with PyTorch of its own.

Each round has all of them in turns, ``--seconds`` each. A row has the median and the least time of an all-reduce, and
the CPU seconds of all members per GB of the array. The ratios to Gloo, or without it to ``segments``, are the medians
of the ratios in a round: the machine may be shared.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.worker.ring import collective
from elasticdl.worker.ring.blocks import Block
from elasticdl.worker.ring.collective import GATHERED_BYTES_MAX, Ring

GLOO = Path(__file__).parent / "peers/gloo.py"
Answer = tuple[list[float], float]
"""Seconds of each all-reduce, and the CPU seconds of all."""
Ask = Callable[[int, int], Answer]
"""Has an array of some elements reduced that many times; the time of an all-reduce is that of the slowest member."""


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


def member(rank: int, size: int, parent: Connection) -> None:
    """One process: reduces what the parent asks for; answers with seconds and CPU seconds."""
    ring = connected(rank, size, parent)
    while (asked := parent.recv()) is not None:
        name, elements, repeats = asked
        collective.GATHERED_BYTES_MAX = 0 if name == "segments" else GATHERED_BYTES_MAX
        block = Block(4 * elements)
        array = block.bytes.view(np.float32)
        reduce: Callable[[Any], None] = ring.all_reduce
        if name == "memory":
            reduce = functools.partial(ring.all_reduce, block=block)
        seconds, filling_s, cpu_s = [], 0.0, time.process_time()
        for _ in range(repeats):
            filled_s = time.thread_time()
            array[:] = 1.0
            filling_s += time.thread_time() - filled_s
            started_s = time.perf_counter()
            reduce(array)
            seconds.append(time.perf_counter() - started_s)
        cpu_s = time.process_time() - cpu_s - filling_s
        if not (array == size).all():
            raise SystemExit("the sum is wrong")
        parent.send((seconds, cpu_s))


def slowest(answers: list[Answer]) -> Answer:
    """Of all members together."""
    return list(map(max, zip(*[answer[0] for answer in answers], strict=True))), sum(answer[1] for answer in answers)


class Rings:
    """The processes of a ring."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(size)]
        self._processes = [context.Process(target=member, args=(rank, size, pipes[rank][1])) for rank in range(size)]
        for process in self._processes:
            process.start()
        self._parents = [pipe[0] for pipe in pipes]
        addresses = [parent.recv() for parent in self._parents]
        for parent in self._parents:
            parent.send(addresses)

    def ask(self, name: str, elements: int, repeats: int) -> Answer:
        """See ``Ask``; ``name``: the way of exchange."""
        for parent in self._parents:
            parent.send((name, elements, repeats))
        return slowest([parent.recv() for parent in self._parents])

    def close(self) -> None:
        """End the processes."""
        for parent in self._parents:
            parent.send(None)
        for process in self._processes:
            process.join()


class Gloo:
    """Processes of another interpreter."""

    def __init__(self, python: str, size: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._processes = [
            subprocess.Popen(
                [python, str(GLOO), str(rank), str(size), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(size)
        ]
        for process in self._processes:
            self._line(process)

    def ask(self, elements: int, repeats: int) -> Answer:
        """See ``Ask``."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([elements, repeats]) + "\n")
            process.stdin.flush()
        answers = [json.loads(self._line(process)) for process in self._processes]
        return slowest([(seconds, cpu_s) for seconds, cpu_s in answers])

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait()

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("a process of Gloo has ended; see above")
        return line


def measure(size: int, arguments: argparse.Namespace) -> None:
    """Print a row for each size of the array and each way of exchange."""
    rings = Rings(size)
    gloo = Gloo(arguments.gloo, size) if arguments.gloo else None
    ways: dict[str, Ask] = {
        "memory": functools.partial(rings.ask, "memory"),
        "tcp": functools.partial(rings.ask, "tcp"),
    }
    if arguments.segments:
        ways["segments"] = functools.partial(rings.ask, "segments")
    if gloo is not None:
        ways["gloo"] = gloo.ask
    for megabyte in arguments.megabytes:
        elements = int(megabyte * 1_000_000) // 4
        repeats = {}
        for name, ask in ways.items():
            once = statistics.median(ask(elements, 3)[0])
            repeats[name] = max(2, min(300, int(arguments.seconds / once)))
        found: dict[str, list[Answer]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, ask in ways.items():
                found[name].append(ask(elements, repeats[name]))
        for name, answers in found.items():
            print_row(size, megabyte, name, answers, found.get("gloo", found.get("segments")))
    rings.close()
    if gloo is not None:
        gloo.close()


def print_row(size: int, megabyte: float, name: str, answers: list[Answer], other: list[Answer] | None) -> None:
    """One way of exchange."""
    times = [one for answer in answers for one in answer[0]]
    spent = sum(answer[1] for answer in answers) / (len(times) * megabyte / 1e3)
    row = f"{size:7} {megabyte:6g} {name:8} {1e3 * statistics.median(times):9.3f} {1e3 * min(times):9.3f} {spent:9.2f}"
    if other is not None and other is not answers:
        pairs = list(zip(answers, other, strict=True))
        time_ratio = statistics.median(statistics.median(own[0]) / statistics.median(one[0]) for own, one in pairs)
        cpu_ratio = statistics.median(own[1] / len(own[0]) * len(one[0]) / one[1] for own, one in pairs)
        row += f" {time_ratio:11.2f} {cpu_ratio:10.2f}"
    sys.stdout.write(row + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gloo", default="", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 10, 100])
    parser.add_argument("--segments", action="store_true", help="also add small arrays up in segments")
    parser.add_argument("--members", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each way of exchange in a round")
    arguments = parser.parse_args()
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n")
    sys.stdout.write("members     MB          median ms    min ms  CPU-s/GB  time/other  CPU/other\n")
    for size in arguments.members:
        measure(size, arguments)


if __name__ == "__main__":
    main()
