"""A process that scans groups of files: reads requests from its standard input, and writes results to its output.

Its argument is the id of its parent process, with which it ends.
"""

from __future__ import annotations

import pickle
import sys
from typing import IO

from elasticdl.cli.indexing.fetching import scan_ahead
from elasticdl.cli.indexing.ranges import ScanRequest, scan_range
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.operating_system import die_with_parent
from elasticdl.shared.storage import ObjectStore, open_store


def serve(requests: IO[bytes], results: IO[bytes]) -> None:
    """Answer requests until there are no more: with the scanned sources, or the error of the first that is wrong."""
    store: ObjectStore | None = None  # One for all requests: connections to it are used again.
    while True:
        try:
            request: ScanRequest = pickle.load(requests)  # noqa: S301  # the parent process alone writes it
        except EOFError:
            return
        try:
            store = store or open_store(request.objects[0].info.uri)
            result: object = _scanned(store, request)
        except ElasticDLError as error:
            result = error
        pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
        results.flush()


def _scanned(store: ObjectStore, request: ScanRequest) -> object:
    if request.part:
        return scan_range(store, request.objects[0], request.options, request.part)
    return list(scan_ahead(store, request.objects, request.options, request.numbers))


if __name__ == "__main__":
    # Not before it is executed: Python ignores a Ctrl-C that comes while it forks for a ``preexec_fn``.
    die_with_parent(int(sys.argv[1]))()
    serve(sys.stdin.buffer, sys.stdout.buffer)
    leave(0)  # Threads of pyarrow may still free objects.
