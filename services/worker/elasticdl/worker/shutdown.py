"""SIGTERM: finish the batch in hand and say goodbye, within a bound whatever the batch does."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger()
_SIGNALS = frozenset({int(signal.SIGTERM), int(signal.SIGINT)})
_FAREWELL_S = 0.4
"""Seconds for giving the tasks back after the grace."""


class Stop:
    """Whether this process was asked to end, and why.

    An event rather than an exception: the loop looks at it between batches, so a batch is never cut in two.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._done = threading.Event()
        self.reason = ""

    def ask(self, reason: str) -> None:
        """Ask for the end; the first reason stays."""
        self.reason = self.reason or reason
        self._asked.set()

    def is_asked(self) -> bool:
        """Whether somebody asked."""
        return self._asked.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long for somebody to ask; returns whether somebody did."""
        return self._asked.wait(timeout_s)

    def done(self) -> None:
        """The goodbye is said."""
        self._done.set()

    def wait_done(self, timeout_s: float) -> bool:
        """Wait at most so long for the goodbye."""
        return self._done.wait(timeout_s)


def catch_signals() -> socket.socket:
    """Have SIGTERM and SIGINT written to a socket instead of ending the process; call it on the main thread, once.

    Python runs signal handlers on the main thread only, which may be inside a compiled step for long; the number of the
    signal is written to the socket at once. Blocking the signals for a thread that waits for them does not do: numpy's
    threads exist before any code of ours can run.

    Returns:
        Where the numbers come out, one byte each; for ``watch``.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    return reading


def watch(signals: socket.socket, stop: Stop, *, grace_s: float, goodbye: Callable[[], None]) -> threading.Thread:
    """Turn a signal into ``stop``, and end the process when its batch takes too long.

    Abandoning a batch is safe at any moment: the ledgers lack it, so it is computed again.

    Args:
        signals: from ``catch_signals``.
        stop: is asked when a signal comes.
        grace_s: seconds for the batch in hand.
        goodbye: gives the tasks back and says so; must be safe to call beside the main thread.
    """

    def run() -> None:
        while (number := signals.recv(1)[0]) not in _SIGNALS:
            pass  # Another signal that somebody has a handler for.
        stop.ask(signal.Signals(number).name)
        if stop.wait_done(grace_s):
            return
        _log.warning("batch abandoned", grace_s=grace_s)
        # The goodbye needs the broker, which may be away; the leases run out by themselves then.
        farewell = threading.Thread(target=goodbye, name="goodbye", daemon=True)
        farewell.start()
        farewell.join(_FAREWELL_S)
        os._exit(0)

    thread = threading.Thread(target=run, name="signals", daemon=True)
    thread.start()
    return thread
