"""``python -m elasticdl.master.container``: the first process of a master's container.

Kubernetes replaces the failed pod of a Job after 10 s, and after twice as long with every further failure. A master
that only lost its connections, or met a fault that its successor may not meet, need not wait for that: this process
starts it again. It imports little, because it stays in memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_FAULT
from elasticdl.shared.process.operating_system import SIGNAL_OFFSET
from elasticdl.shared.process.retries import Backoff

RESTARTS_MAX = 5
"""Restarts in a row. After that the pod fails, and Kubernetes waits before it creates the next one."""
BACKOFF = Backoff(first_s=1.0, max_s=16.0)
"""Pauses before the restarts in a row."""
HEALTHY_S = 300.0
"""A master that ran for this time ends a series of failures."""


def supervise(run_master: Callable[[], int], monotonic: Callable[[], float], sleep: Callable[[float], object]) -> int:
    """Run masters until one ends for good.

    Args:
        run_master: runs a master; returns its exit code, or minus the number of the signal that ended it.

    Returns:
        The exit code of the container.
    """
    restarts = 0
    while True:
        started_s = monotonic()
        code = run_master()
        if monotonic() - started_s >= HEALTHY_S:
            restarts = 0
        if restarts == RESTARTS_MAX or not (code < 0 or code in (EXIT_AWAY, EXIT_FAULT)):
            return code if code >= 0 else SIGNAL_OFFSET - code
        restarts += 1
        sleep(BACKOFF.pause_s(restarts))


def main() -> int:
    """Entry point."""
    masters: list[subprocess.Popen[bytes]] = []

    def terminate(number: int, _frame: FrameType | None) -> None:
        """The kernel ignores SIGTERM for the first process of a container unless it has a handler."""
        for master in masters:
            master.terminate()
        os._exit(SIGNAL_OFFSET + number)

    def run_master() -> int:
        master = subprocess.Popen([sys.executable, "-P", "-m", "elasticdl.master.main"])
        masters[:] = [master]
        return master.wait()

    signal.signal(signal.SIGTERM, terminate)
    return supervise(run_master, time.monotonic, time.sleep)


if __name__ == "__main__":
    sys.exit(main())
