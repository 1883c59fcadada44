"""Gives every Python thread its name in /proc too; ``thread_cpu.py`` puts this folder on the path of a job."""

import contextlib
import threading
from pathlib import Path

_run = threading.Thread.run


def _named(thread: threading.Thread) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(thread.name[:15])
    _run(thread)


threading.Thread.run = _named  # type: ignore[assignment, method-assign]
