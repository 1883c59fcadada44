"""CPU microseconds of a push with the pull behind it, through the wire alone, in one process.

    python benchmarks/wire_exchange.py [--exchanges 1500]

The frames have the sizes of a DeepFM batch of 26 records with an MLP of 64-32: 30,000 dense elements, 600 rows. The
handler answers at once. The time contains both ends: encoding, sending, receiving, threads. Prints one number.
"""

from __future__ import annotations

import argparse
import logging
import os
import time

import numpy as np
import structlog

from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.client import WireClient
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.server import Response, WireServer

TOKEN = "benchmark"
DENSE, ROWS, IDS = np.zeros(30_000, np.float32), np.zeros(10_200, np.float32), np.arange(600)


def answer(frame: Frame) -> Response:
    """What a ps of that model answers, by size."""
    if frame.meta == b"push":
        return Response(meta=bytes(40))
    return Response(meta=bytes(40), tensors=[DENSE, ROWS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1500)
    exchanges = parser.parse_args().exchanges
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    server = WireServer(answer, token=TOKEN, identity="ps", on_fatal=lambda _: os._exit(1))
    server.start()
    client = WireClient(server.address, token=TOKEN, peer="benchmark", pool=BufferPool())
    started_s = time.process_time()
    for _ in range(exchanges):
        tickets = [client.send(b"push", [DENSE, ROWS, IDS], is_followed=True), client.send(b"pull", [IDS])]
        for ticket in tickets:
            ticket.result().release()
    print(round(1e6 * (time.process_time() - started_s) / exchanges))
    client.close()
    server.close()


if __name__ == "__main__":
    main()
