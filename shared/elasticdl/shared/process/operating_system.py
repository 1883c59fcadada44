"""What the operating system does for a process: its title, its children, and its free memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

SIGNAL_OFFSET = 128
"""A shell and a container runtime report the end by a signal as this plus its number."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_FIELDS_BEFORE_STATE = 2
_ARG_START, _ARG_END = 47 - _FIELDS_BEFORE_STATE, 48 - _FIELDS_BEFORE_STATE
"""Where the fields of ``/proc/self/stat`` behind the name of the command have the bounds of the command line."""


def set_title(pod: str, job: str) -> None:
    """Show this process as ``elasticdl POD JOB`` instead of its command line; does nothing where there is no ``/proc``.

    The kernel shows the memory in which it has stored the command line, so a longer title is cut.

    Args:
        pod: also the name of the process, which ``top`` shows.
    """
    with contextlib.suppress(OSError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        title = f"elasticdl {pod} {job}".encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title, len(title))
        ctypes.CDLL(None).prctl(_PR_SET_NAME, pod.encode())


def end_on_sigterm() -> None:
    """Exit at once on SIGTERM, which the kernel ignores for the first process of a container without a handler."""
    signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(SIGNAL_OFFSET + number))


def die_with_parent(parent: int | None = None) -> Callable[[], None]:
    """A ``preexec_fn`` that has the child killed when the forking thread ends; does nothing where prctl is missing.

    Args:
        parent: id of the parent process; None: this process, before it forks.
    """
    parent = parent or os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # The parent died between fork and prctl, so the kernel will not kill us.
                os._exit(1)

    return tie


def kill_group(pid: int) -> None:
    """Kill a child that leads a process group of its own, and what is left of its group. Reap the child afterwards.

    Processes of user code, such as data loaders, would survive it. Those in a session of their own do.

    Args:
        pid: the child, running or ended. It is not reaped yet, so no other process has its id.
    """
    for kill in (os.killpg, os.kill):  # A process that was just forked may not lead its group yet.
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def return_freed_memory() -> bool:
    """Return freed memory to the operating system: glibc keeps what small objects took, for later ones.

    It takes milliseconds, so it is for moments after which a process keeps little of a lot.

    Returns:
        Whether the C library can do that; musl and others can't, or return memory by themselves.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return False
    library.malloc_trim(0)
    return True
