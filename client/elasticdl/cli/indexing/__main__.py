"""A process that scans groups of files: reads orders from its standard input, and writes results to its output."""

from __future__ import annotations

import pickle
import sys
from typing import IO

from elasticdl.cli.indexing.orders import ScanOrder
from elasticdl.shared.data import scan_source
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage import open_store


def serve(orders: IO[bytes], results: IO[bytes]) -> None:
    """Answer orders until there are no more: with the scanned sources, or the error of the first that is wrong."""
    while True:
        try:
            order: ScanOrder = pickle.load(orders)  # noqa: S301  # the parent process alone writes it
        except EOFError:
            return
        try:
            store = open_store(order.objects[0].info.uri)
            result: object = [
                scan_source(store, data, order.first + place, order.options) for place, data in enumerate(order.objects)
            ]
        except ElasticDLError as error:
            result = error
        pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
        results.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
