"""Scans the files of a data set with as many processes as the machine has cores."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Self

from elasticdl.cli.indexing.orders import ScanOrder, group
from elasticdl.shared.data import DataObject, ReaderOptions, ScannedSource, scan_sources
from elasticdl.shared.errors import ElasticDLError, PermanentError
from elasticdl.shared.storage import ObjectStore

SMALL_BYTES = 64 << 20
SMALL_FILES = 1000
"""A smaller data set is scanned by this process: others need half a second to start."""


def scan_in_parallel(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions
) -> Iterable[ScannedSource]:
    """Scan the files of a data set in order, with several processes if that is faster.

    Args:
        store: holds the files; each process opens one of its own.
        objects: the files.
        options: how to read them.

    Raises:
        UserError: a file is wrong; the first one in the order of the files is named.
        PermanentError: a process crashed.
    """
    orders = group(objects, options)
    processes = min(len(os.sched_getaffinity(0)), len(orders))
    is_small = len(objects) < SMALL_FILES and sum(data.info.size_bytes for data in objects) < SMALL_BYTES
    if is_small or processes < 2:
        return scan_sources(store, objects, options)
    return scan_orders(orders, processes)


def scan_orders(orders: Sequence[ScanOrder], processes: int) -> Iterator[ScannedSource]:
    """Scan groups of files with processes, which end with the iteration.

    Args:
        orders: the groups.
        processes: how many.
    """
    with ExitStack() as stack:
        idle: SimpleQueue[_Process] = SimpleQueue()

        def scan(order: ScanOrder) -> list[ScannedSource]:
            process = idle.get()
            try:
                return process.scan(order)
            finally:
                idle.put(process)

        # The threads end last: killing the processes ends what they wait for.
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        for _ in range(processes):
            idle.put(stack.enter_context(_Process()))
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        for scanned in threads.map(scan, orders):
            yield from scanned


class _Process:
    """A process that scans; leaving its context kills it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "elasticdl.cli.indexing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which then kills that one.
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def scan(self, order: ScanOrder) -> list[ScannedSource]:
        """The sources of a group.

        Raises:
            ElasticDLError: what the process raised.
            PermanentError: the process crashed.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump(order, stdin, pickle.HIGHEST_PROTOCOL)
            stdin.flush()
            result = pickle.load(stdout)  # noqa: S301  # the child process alone writes it
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            code = self._process.poll()
            raise PermanentError(f"a process that indexes data exited unexpectedly (exit code {code})") from error
        if isinstance(result, ElasticDLError):
            raise result
        scanned: list[ScannedSource] = result
        return scanned
