"""Ctrl-C, SIGTERM and SIGHUP: until a job handles them, all raise ``KeyboardInterrupt``, so that commands clean up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    import subprocess

CLEANUP_S = 5.0
"""Seconds after an interrupt in which further ones are ignored: the command is cleaning up."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_last_s = -CLEANUP_S


def catch() -> None:
    """Let all signals that end a command raise ``KeyboardInterrupt`` from now on."""
    for number in _numbers():
        signal.signal(number, _raise)


def ignore() -> None:
    """Ignore those signals for good, because the process is ending: Python's own end would die of them."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def handled(loop: asyncio.AbstractEventLoop, handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call a handler for each signal instead.

    Signals that ``catch`` would have handled afterwards are ignored: the job has ended, and its report is short work.
    """
    former = {number: signal.getsignal(number) for number in _numbers()}
    for number in former:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number, handling in former.items():
            loop.remove_signal_handler(number)
            signal.signal(number, _ignore if handling is _raise else handling)


def wait_for(process: subprocess.Popen[Any], *, passes_on: Callable[[], bool] = lambda: True) -> int:
    """Wait for another command to end; returns its exit code. It says itself what an interrupt means for its job.

    Args:
        passes_on: whether to send it an interrupt of this process, which it does not get otherwise.
    """
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if passes_on():
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)


def _numbers() -> list[signal.Signals]:
    """The signals to handle: under ``nohup`` the kernel ignores SIGHUP, and so do we."""
    return [one for one in _SIGNALS if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]


def _raise(number: int, frame: FrameType | None) -> None:
    del number, frame
    global _last_s
    ignored, _last_s = time.monotonic() < _last_s + CLEANUP_S, time.monotonic()
    if not ignored:
        raise KeyboardInterrupt


def _ignore(number: int, frame: FrameType | None) -> None:
    """Unlike ``SIG_IGN``, child processes do not inherit it."""
    del number, frame
