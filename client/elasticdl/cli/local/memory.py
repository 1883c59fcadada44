"""Whether the kernel killed a process because memory ran out: no exit status says so, but one of its counters does."""

from __future__ import annotations

import re
import signal
from pathlib import Path

_COUNTER = Path("/proc/vmstat")


class OomWatch:
    """Tells the kernel's SIGKILLs from others.

    A process that was killed by SIGKILL while the kernel's out-of-memory killer was at work, here or in another
    container of the machine, was most likely killed by it.

    Args:
        counter: file with a line ``oom_kill N``; where there is none, no kill is the kernel's.
    """

    def __init__(self, counter: Path = _COUNTER) -> None:
        self._counter = counter
        self._before: dict[str, int] = {}

    def started(self, name: str) -> None:
        """A process has begun under this name."""
        self._before[name] = self._kills()

    def has_killed(self, name: str, exit_code: int) -> bool:
        """Whether the process that ended under this name, with this exit code, was killed for its memory."""
        if exit_code != -signal.SIGKILL:
            return False
        kills = self._kills()
        return kills > self._before.get(name, kills)

    def _kills(self) -> int:
        try:
            found = re.search(r"^oom_kill (\d+)$", self._counter.read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0
