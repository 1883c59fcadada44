"""Scans the files of a data set with as many processes as the machine has cores."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from elasticdl.cli.indexing.fetching import scan_ahead
from elasticdl.cli.indexing.orders import RangeOrder, ScanOrder, group
from elasticdl.cli.indexing.ranges import RANGE_BYTES, divide, join, scan_range
from elasticdl.shared.data import DataObject, ReaderOptions, ScannedSource, scan_source
from elasticdl.shared.errors import ElasticDLError, PermanentError, UserError
from elasticdl.shared.storage import ObjectStore

Order = tuple[ScanOrder, RangeOrder | None]
"""A group, and the range of its only file that is to be scanned; None: the whole group is."""
_O = TypeVar("_O")
_R = TypeVar("_R")
SMALL_BYTES = 64 << 20
SMALL_FILES = 1000
"""A smaller data set is scanned by this process: others need half a second to start."""


def scan_in_parallel(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int] | None = None
) -> Iterable[ScannedSource]:
    """Scan files of a data set in order, with several processes if that is faster.

    Args:
        store: holds the files; each process opens one of its own.
        numbers: of each in the plan; None: they are all files of the plan.

    Raises:
        UserError: a file is wrong; the first one in the order of the files is named.
        PermanentError: a process crashed.
    """
    numbers = range(len(objects)) if numbers is None else numbers
    is_small = len(objects) < SMALL_FILES and sum(data.info.size_bytes for data in objects) < SMALL_BYTES
    processes = len(os.sched_getaffinity(0))
    if is_small or processes < 2:
        return scan_ahead(store, objects, options, numbers)
    orders = orders_of(store, objects, options, numbers)
    if len(orders) < 2:
        return scan_ahead(store, objects, options, numbers)
    return scan_orders(store, orders, min(processes, len(orders)))


def orders_of(
    store: ObjectStore,
    objects: Sequence[DataObject],
    options: ReaderOptions,
    numbers: Sequence[int],
    range_bytes: int = RANGE_BYTES,
) -> list[Order]:
    """What processes scan: large files in ranges, and the others in groups.

    Args:
        range_bytes: bytes of a range, at least.
    """
    orders: list[Order] = []
    for order in group(objects, options, numbers):
        parts = divide(store, order.objects[0], range_bytes) if len(order.objects) == 1 else ()
        if len(parts) > 1:
            ranges = [RangeOrder(data=order.objects[0], part=part, options=order.options) for part in parts]
            orders += [(order, each) for each in ranges]
        else:
            orders.append((order, None))
    return orders


def scan_orders(store: ObjectStore, orders: Sequence[Order], processes: int) -> Iterator[ScannedSource]:
    """Scan groups of files, and ranges, with processes, which end with the iteration.

    Args:
        store: holds the files; each process opens one of its own.
        orders: groups, each once without a range, or once for each range of its file.
        processes: how many.
    """
    with ExitStack() as stack:
        idle: SimpleQueue[_Process] = SimpleQueue()

        def scan(order: Order) -> tuple[Order, Any]:
            process = idle.get()
            try:
                return order, process.scan(order[1] or order[0])
            except UserError as error:
                if order[1] is None:
                    raise
                return order, error
            finally:
                idle.put(process)

        # The threads end last: killing the processes ends what they wait for.
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        for _ in range(processes):
            idle.put(stack.enter_context(_Process()))
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        results = _in_order(threads, scan, orders, 2 * processes)
        for order, scanned in results:
            if order[1] is None:
                yield from scanned
            else:
                others = sum(1 for other, _ in orders if other is order[0]) - 1
                yield _joined(store, order[0], itertools.chain([(order, scanned)], itertools.islice(results, others)))


def _in_order(threads: ThreadPoolExecutor, scan: Callable[[_O], _R], orders: Iterable[_O], window: int) -> Iterator[_R]:
    """Results in the order of the orders, of which so many are under way or wait: results take memory."""
    waiting: deque[Future[_R]] = deque()
    for order in orders:
        waiting.append(threads.submit(scan, order))
        if len(waiting) >= window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _joined(store: ObjectStore, order: ScanOrder, results: Iterator[tuple[Order, Any]]) -> ScannedSource:
    """A file that was scanned in ranges."""
    data, options = order.objects[0], order.options
    parts = ((each.part, scanned) for (_, each), scanned in results if each is not None)
    source = join(data, order.numbers[0], options, parts, lambda part: scan_range(store, data, options, part))
    for _ in results:
        pass  # After an error, the results of the ranges behind it.
    # From the beginning, the same error has the number of its record.
    return source or scan_source(store, data, order.numbers[0], options)


class _Process:
    """A process that scans; the end of its context, or of this thread, kills it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "elasticdl.cli.indexing", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which then kills that one.
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def scan(self, order: ScanOrder | RangeOrder) -> Any:
        """The sources of a group, or the records of a range.

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
        return result
