"""The kernel's count of out-of-memory kills."""

from __future__ import annotations

import re
import signal
from pathlib import Path

_COUNTER = Path("/proc/vmstat")


class OomWatch:
    """Tells out-of-memory kills by the kernel from other SIGKILLs.

    No exit status tells them apart, but the kernel counts its kills. If the count rose while a process ran, and the
    process ended with SIGKILL, then the kernel most likely killed it. The count is that of the whole machine.

    Args:
        counter: file with a line ``oom_kill N``. Where it is missing, no kill is attributed to the kernel.
    """

    def __init__(self, counter: Path = _COUNTER) -> None:
        self._counter = counter
        self._before: dict[str, int] = {}

    def started(self, name: str) -> None:
        """A process was started under this name."""
        self._before[name] = self._kills()

    def has_killed(self, name: str, exit_code: int) -> bool:
        """Whether the kernel killed the process of this name, which ended with this exit code."""
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
