"""Records per second of a DeepFM job with a slow network between workers and ps, with staleness 0 and 1, in turns.

    python benchmarks/network_delay.py clicks/train [--delay_ms 0 5] [--staleness 0 1] [--workers 1] [--rounds 3]
        [--beside FOLDER] [--option=--use_async=false]

The data is what ``elasticdl zoo data deepfm clicks`` wrote. Workers reach the ps through a proxy on another loopback
address, which forwards every piece of data ``--delay_ms`` after it received it, in both directions. With a delay of 0
there is no proxy. ``--beside`` also runs the command line of another checkout (with a ``.venv``), and ``--option``
passes an option on to ``elasticdl train``. Prints one line per run, and the medians.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PS_HOST, PROXY_HOST = "127.0.0.1", "127.0.0.2"
PIECE_BYTES = 1 << 18
PIECES_MAX = 256
"""Pieces that are on their way in one direction; then the sender waits."""


class DelayProxy:
    """Forwards TCP connections with a delay.

    Args:
        listener: accepts the connections.
        target: where they are forwarded to.
        delay_s: seconds between the arrival of a piece and its departure.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int], delay_s: float) -> None:
        self._listener = listener
        self._target = target
        self._delay_s = delay_s

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:  # The ps is not there yet; the worker connects again.
                    client.close()
                    continue
                self._forward(client, server)
                self._forward(server, client)

    def _forward(self, source: socket.socket, destination: socket.socket) -> None:
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(PIECES_MAX)
        threading.Thread(target=self._receive, args=(source, pieces), daemon=True).start()
        threading.Thread(target=self._send, args=(destination, pieces), daemon=True).start()

    def _receive(self, source: socket.socket, pieces: queue.Queue[tuple[float, bytes]]) -> None:
        piece = b"-"
        while piece:
            try:
                piece = source.recv(PIECE_BYTES)
            except OSError:
                piece = b""
            pieces.put((time.monotonic() + self._delay_s, piece))

    def _send(self, destination: socket.socket, pieces: queue.Queue[tuple[float, bytes]]) -> None:
        while True:
            due_s, piece = pieces.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            with contextlib.suppress(OSError):
                if not piece:
                    destination.shutdown(socket.SHUT_RDWR)
                    return
                destination.sendall(piece)


@contextlib.contextmanager
def delayed_ps(delay_s: float) -> Iterator[dict[str, str]]:
    """The environment variables with which the workers of a job with one ps reach it through a proxy."""
    if not delay_s:
        yield {}
        return
    with socket.create_server((PROXY_HOST, 0)) as listener:
        port = listener.getsockname()[1]
        proxy = DelayProxy(listener, (PS_HOST, port), delay_s)
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield {"ELASTICDL_ADVERTISED_HOST": PROXY_HOST, "ELASTICDL_PORT": str(port)}
        listener.shutdown(socket.SHUT_RDWR)


def run(arguments: argparse.Namespace, environment: dict[str, str], *more: str) -> float:
    """Records per second of one job."""
    flags = [f"--{name}={getattr(arguments, name)}" for name in ("workers", "batch_size", "warm_up", "batches")]
    command = [sys.executable, str(HERE / "thread_cpu.py"), str(arguments.data), *flags, *more]
    output = subprocess.run(command, env=os.environ | environment, check=True, stdout=subprocess.PIPE).stdout
    return float(json.loads(output)["records per second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--delay_ms", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--warm_up", type=int, default=100)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    options = [f"--option={option}" for option in arguments.option]
    versions = {f"staleness {each}": ({"ELASTICDL_STALENESS": str(each)}, options) for each in arguments.staleness}
    if arguments.beside:
        versions[arguments.beside.name] = ({}, [f"--tree={arguments.beside}"])
    rates: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for delay_ms, version in itertools.product(arguments.delay_ms, versions):
            setting, flags = versions[version]
            with delayed_ps(delay_ms / 1e3) as environment:
                rate = run(arguments, setting | environment, *flags)
            name = f"delay {delay_ms:g} ms, {version}"
            rates.setdefault(name, []).append(rate)
            print(f"{name}: {rate:,.0f} records/s", flush=True)
    for name, values in rates.items():
        print(f"{name}: median {statistics.median(values):,.0f} records/s")


if __name__ == "__main__":
    main()
