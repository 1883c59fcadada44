"""A process that scans groups of files: reads orders from its standard input, and writes results to its output."""

from __future__ import annotations

import pickle
import sys
from typing import IO

from elasticdl.cli.indexing.orders import RangeOrder, ScanOrder
from elasticdl.cli.indexing.ranges import scan_range
from elasticdl.shared.data import scan_source
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage import open_store


def serve(orders: IO[bytes], results: IO[bytes]) -> None:
    """Answer orders until there are no more: with the scanned sources, or the error of the first that is wrong."""
    while True:
        try:
            order: ScanOrder | RangeOrder = pickle.load(orders)  # noqa: S301  # the parent process alone writes it
        except EOFError:
            return
        try:
            result: object = _scanned(order)
        except ElasticDLError as error:
            result = error
        pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
        results.flush()


def _scanned(order: ScanOrder | RangeOrder) -> object:
    if isinstance(order, RangeOrder):
        return scan_range(open_store(order.data.info.uri), order.data, order.options, order.part)
    store = open_store(order.objects[0].info.uri)
    return [scan_source(store, data, order.first + place, order.options) for place, data in enumerate(order.objects)]


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
