"""The child processes of a launcher: started, watched, signalled and accounted for, by name."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil


class Starter(Protocol):
    """Starts processes: ``Spawner``, or ``ForkServer`` where there is one."""

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``; the process is a child of this one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of one process.

    Attributes:
        name: the name that it ran under.
        pid: its process id.
        exit_code: its exit code, or minus the number of the signal that ended it.
    """

    name: str
    pid: int
    exit_code: int


@dataclass(slots=True, kw_only=True)
class Usage:
    """What the processes of one name have cost so far.

    Attributes:
        starts: processes started under the name.
        returns: those of them that followed an end that was ordered: called back by scaling, not restarted.
        cpu_s: processor seconds of those that ended.
        rss_max_bytes: the most resident memory that any of them was seen with.
    """

    starts: int = 0
    returns: int = 0
    cpu_s: float = 0.0
    rss_max_bytes: int = 0


class Processes:
    """Children by name, at most one at a time under each.

    Args:
        starter: starts them.
        on_exit: called once for each process that ended, on a thread of its own, after it was reaped.
    """

    def __init__(self, starter: Starter, on_exit: Callable[[Exit], None]) -> None:
        self._on_exit = on_exit
        self._starter = starter
        self._lock = threading.Lock()  # A pid is signalled or reaped, never reaped and then signalled.
        self._ended = threading.Condition(self._lock)
        self._pids: dict[str, int] = {}
        self.usage: dict[str, Usage] = {}

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        output: Path | None = None,
    ) -> tuple[int, bool]:
        """Have a process running under this name; see ``Spawner.start``.

        Returns:
            Its process id, and whether it was started now (False: one was running already).

        Raises:
            PermanentError: it can't be started.
        """
        with self._lock:
            if name in self._pids:
                return self._pids[name], False
            # Popen is not kept: its own polling would reap the child behind our back.
            pid = self._starter.start(command, environment=environment, log=log, output=output)
            self._pids[name] = pid
            self.usage.setdefault(name, Usage()).starts += 1
        threading.Thread(target=self._watch, args=(name, pid), name=f"wait-{name}", daemon=True).start()
        return pid, True

    def pid(self, name: str) -> int | None:
        """Process id of the one that is running under this name."""
        with self._lock:
            return self._pids.get(name)

    def names(self) -> list[str]:
        """Names under which a process is running."""
        with self._lock:
            return sorted(self._pids)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; nothing happens when no such process is running."""
        with self._lock:
            if name in self._pids:
                os.kill(self._pids[name], number)

    def kill_all(self) -> None:
        """Kill every process at once and wait until they are reaped."""
        for name in self.names():
            self.signal(name, signal.SIGKILL)
        self.wait_all(timeout_s=10.0)

    def wait_all(self, timeout_s: float) -> bool:
        """Wait until no process is running; False when some still are after ``timeout_s`` seconds."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._pids, timeout=timeout_s)

    def sample(self) -> None:
        """Look how much memory everybody uses; called about once a second.

        The kernel's own maximum for ended children counts the moment between fork and exec, when a child still has
        the launcher's memory, and is of no use for small services.
        """
        with self._lock:
            running = list(self._pids.items())
        for name, pid in running:
            usage = self.usage[name]
            usage.rss_max_bytes = max(usage.rss_max_bytes, _rss_peak_bytes(pid))

    def _watch(self, name: str, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._ended:
            _, status, resources = os.wait4(pid, 0)
            del self._pids[name]
            usage = self.usage[name]
            usage.cpu_s += resources.ru_utime + resources.ru_stime
            self._ended.notify_all()
        self._on_exit(Exit(name=name, pid=pid, exit_code=os.waitstatus_to_exitcode(status)))


def _rss_peak_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, psutil.Error):
        return 0  # It has just ended.
