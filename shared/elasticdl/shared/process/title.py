"""The title of this process in ``ps`` and ``top``."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

_PR_SET_NAME = 15
_FIELDS_BEFORE_STATE = 2
_ARG_START, _ARG_END = 47 - _FIELDS_BEFORE_STATE, 48 - _FIELDS_BEFORE_STATE
"""Where the fields of ``/proc/self/stat`` behind the name of the command have the bounds of the command line."""


def set_title(pod: str, job: str) -> None:
    """Show this process as ``elasticdl POD JOB`` instead of its command line; does nothing where there is no ``/proc``.

    The kernel shows the memory in which it has stored the command line, so a longer title is cut.

    Args:
        pod: also the name of the process, which ``top`` shows.
        job: id of the job.
    """
    with contextlib.suppress(OSError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        title = f"elasticdl {pod} {job}".encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title, len(title))
        ctypes.CDLL(None).prctl(_PR_SET_NAME, pod.encode())
