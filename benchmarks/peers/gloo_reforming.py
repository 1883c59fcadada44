"""One member of a Gloo group that is formed again in the same process. Started by ``benchmarks/allreduce_kills.py``.

    PYTHON benchmarks/peers/gloo_reforming.py NUMBER PORT ELEMENTS

NUMBER tells processes apart; -1 is no member, but serves the store at PORT through which members find each other.
PYTHON has PyTorch 2.15 or later, whose ``_reconfigure`` is experimental. A line of the input is a generation, ``[uuid,
handles]``: the member joins it, and reduces all the time until a neighbour is lost, or until a member has read
``pause``. Then it says its handle for the next generation. When its first all-reduce in a generation has ended, it says
so.

The first member that notices a death leaves the group at once, so that the others are not left in a blocked call.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import random
import select
import sys
import time
from typing import Any

TIMEOUT = datetime.timedelta(seconds=20)
PROCESSES_MAX = 1000


def say(*what: object) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def lines() -> Any:
    """Lines of the input, read without a buffer, so that ``select`` sees what is left."""
    data = b""
    while True:
        while b"\n" not in data:
            if not (more := os.read(0, 1 << 16)):
                return
            data += more
        line, data = data.split(b"\n", 1)
        yield json.loads(line)


def main() -> None:
    torch, distributed = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    number, port, elements = map(int, sys.argv[1:])
    store = distributed.TCPStore("127.0.0.1", port, is_master=number < 0, wait_for_workers=False)
    if number < 0:
        say("ready", "")
        sys.stdin.read()
        return
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", store=store, rank=number, world_size=PROCESSES_MAX, enable_reconfigure=True, timeout=TIMEOUT
    )
    array = torch.empty(elements)
    say("ready", distributed._get_reconfigure_handle())
    for asked in lines():
        if asked == "pause":
            continue
        uuid, handles = asked
        distributed._reconfigure(uuid=uuid, handles=handles, timeout=TIMEOUT).wait()
        is_first, is_paused = True, False
        try:
            while not is_paused:
                array.fill_(1.0)
                array[0] = bool(select.select([0], [], [], 0)[0])
                distributed.all_reduce(array)
                is_paused = bool(array[0] > 0)
                if is_first:
                    say("committed", time.monotonic())
                    is_first = False
        except RuntimeError:
            own = [distributed._get_reconfigure_handle()]
            distributed._reconfigure(uuid=random.getrandbits(60), handles=own, timeout=TIMEOUT).wait()
        say("left", distributed._get_reconfigure_handle())


if __name__ == "__main__":
    main()
