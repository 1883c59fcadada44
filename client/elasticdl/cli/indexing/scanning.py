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
from contextlib import ExitStack, closing
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from elasticdl.cli.indexing.fetching import scan_ahead
from elasticdl.cli.indexing.ranges import RANGE_BYTES, ScanRequest, divide, join, scan_range
from elasticdl.shared.data import DataObject, ReaderOptions, ScannedSource, scan_source
from elasticdl.shared.errors import ElasticDLError, PermanentError, UserError
from elasticdl.shared.storage import ObjectStore

SMALL_BYTES = 64 << 20
SMALL_FILES = 1000
"""A smaller data set is scanned by this process: others need half a second to start."""
GROUP_FILES_MAX = 64
"""Files of a group: sending one costs as much as scanning a small file."""
GROUP_BYTES_MAX = 16 << 20
"""Bytes of a group of several files, so that all processes are busy until the end."""


def scan_in_parallel(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int] | None = None
) -> Iterable[ScannedSource]:
    """Scan files of a data set in order, with several processes if that is faster.

    Args:
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
    requests = requests_of(store, objects, options, numbers)
    if len(requests) < 2:
        return scan_ahead(store, objects, options, numbers)
    return scan_requests(store, requests, min(processes, len(requests)))


def requests_of(
    store: ObjectStore,
    objects: Sequence[DataObject],
    options: ReaderOptions,
    numbers: Sequence[int],
    range_bytes: int = RANGE_BYTES,
) -> list[ScanRequest]:
    """What processes scan: large files in ranges of at least ``range_bytes``, and the others in groups."""
    requests: list[ScanRequest] = []
    for request in group(objects, options, numbers):
        parts = divide(store, request.objects[0], range_bytes) if len(request.objects) == 1 else ()
        requests += [replace(request, part=part) for part in parts] if len(parts) > 1 else [request]
    return requests


def group(objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int]) -> list[ScanRequest]:
    """Divide files of a data set into groups."""
    # Read-only views of dicts can't be pickled.
    options = replace(options, column_types=dict(options.column_types), fill_missing=dict(options.fill_missing))
    requests: list[ScanRequest] = []

    def add(start: int, stop: int) -> None:
        requests.append(ScanRequest(objects=tuple(objects[start:stop]), numbers=numbers[start:stop], options=options))

    start, size = 0, 0
    for place, data in enumerate(objects):
        is_full = place - start >= GROUP_FILES_MAX or size + data.info.size_bytes > GROUP_BYTES_MAX
        if place > start and is_full:
            add(start, place)
            start, size = place, 0
        size += data.info.size_bytes
    if start < len(objects):
        add(start, len(objects))
    return requests


def scan_requests(store: ObjectStore, requests: Sequence[ScanRequest], processes: int) -> Iterator[ScannedSource]:
    """Scan groups of files, and ranges, with processes, which end with the iteration.

    Args:
        requests: groups, each once without a range, or once for each range of its file.
    """
    with ExitStack() as stack:
        idle: SimpleQueue[_Process] = SimpleQueue()

        def scan(request: ScanRequest) -> Any:
            process = idle.get()
            try:
                return process.scan(request)
            except UserError as error:
                if request.part is None:
                    raise
                return error
            finally:
                idle.put(process)

        # The threads end last: killing the processes ends what they wait for.
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        for _ in range(processes):
            idle.put(stack.enter_context(closing(_Process())))
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        results = zip(requests, _in_order(threads, scan, requests, 2 * processes), strict=True)
        for request, scanned in results:
            if request.part is None:
                yield from scanned
            else:
                others = sum(1 for other in requests if other.objects is request.objects) - 1
                yield _joined(store, itertools.chain([(request, scanned)], itertools.islice(results, others)), request)


def _in_order(
    threads: ThreadPoolExecutor, scan: Callable[[ScanRequest], Any], requests: Iterable[ScanRequest], window: int
) -> Iterator[Any]:
    """Results in the order of the requests, of which at most ``window`` are under way or wait: they take memory."""
    waiting: deque[Future[Any]] = deque()
    for request in requests:
        waiting.append(threads.submit(scan, request))
        if len(waiting) >= window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _joined(store: ObjectStore, results: Iterator[tuple[ScanRequest, Any]], first: ScanRequest) -> ScannedSource:
    """A file that was scanned in ranges."""
    data, number, options = first.objects[0], first.numbers[0], first.options
    parts = ((request.part, scanned) for request, scanned in results if request.part is not None)
    source = join(data, number, options, parts, lambda part: scan_range(store, data, options, part))
    for _ in results:
        pass  # After an error, the results of the ranges behind it.
    # From the beginning, the same error has the number of its record.
    return source or scan_source(store, data, number, options)


class _Process:
    """A process that scans, until it is closed or this thread ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "elasticdl.cli.indexing", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which then kills that one.
        )

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def scan(self, request: ScanRequest) -> Any:
        """The sources of a group, or the records of a range. Raises ``PermanentError``: the process crashed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump(request, stdin, pickle.HIGHEST_PROTOCOL)
            stdin.flush()
            result = pickle.load(stdout)  # noqa: S301  # the child process alone writes it
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            code = self._process.poll()
            raise PermanentError(f"a process that indexes data exited unexpectedly (exit code {code})") from error
        if isinstance(result, ElasticDLError):
            raise result
        return result
