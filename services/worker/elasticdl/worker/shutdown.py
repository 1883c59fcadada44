"""Graceful shutdown on SIGTERM: stop after the running batch, or at a time limit if the batch takes longer."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger()
_SIGNALS = frozenset({int(signal.SIGTERM), int(signal.SIGINT)})


def catch_signals() -> socket.socket:
    """Have SIGTERM and SIGINT written to a socket instead of ending the process; call it on the main thread, once.

    Python runs signal handlers on the main thread only, which may be inside a compiled step for long; the number of the
    signal is written to the socket at once. Blocking the signals for a thread that waits for them is no alternative:
    numpy's threads exist before any code of ours can run.

    Returns:
        Where the numbers come out, one byte each; for ``watch``.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: None)
    return reading


def watch(
    signals: socket.socket, *, stop: Callable[[str], None], ended: threading.Event, limit_s: float
) -> threading.Thread:
    """Pass a signal on, and end the process if it has not ended by itself in time.

    Abandoning a batch is safe at any moment: the ledgers lack it, so it is computed again.

    Args:
        stop: told the name of the signal, on a thread of its own; it may block, for example while the broker is away.
    """

    def run() -> None:
        while (number := signals.recv(1)[0]) not in _SIGNALS:
            pass  # Another signal that has a handler of its own.
        name = signal.Signals(number).name
        threading.Thread(target=stop, args=(name,), name="stop", daemon=True).start()
        if not ended.wait(limit_s):
            _log.warning("running batch abandoned", limit_s=limit_s)
            os._exit(0)

    thread = threading.Thread(target=run, name="signals", daemon=True)
    thread.start()
    return thread
