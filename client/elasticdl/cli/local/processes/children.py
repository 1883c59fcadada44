"""The child processes of a launcher by name: starting, watching, signalling, and accounting for CPU and memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from elasticdl.shared.process.operating_system import kill_group

_counted_s = 0.0
"""CPU seconds of this process that a job has counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of one process; ``exit_code``: its exit code, or minus the number of the signal that ended it."""

    name: str
    pid: int
    exit_code: int


class Starter(Protocol):
    """Starts processes: ``Spawner``, or ``ForkServers``."""

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``; the process is a child of this one."""
        ...


@dataclass(slots=True, kw_only=True)
class Usage:
    """What the processes of one name have used so far.

    Attributes:
        starts: processes started under the name.
        ordered_stops: those of them that were started after an ordered stop, as by scaling: they are no restarts.
    """

    starts: int = 0
    ordered_stops: int = 0
    cpu_s: float = 0.0
    rss_max_bytes: int = 0

    @property
    def restarts(self) -> int:
        """Starts after an exit that was not ordered."""
        return max(0, self.starts - self.ordered_stops - 1)


class ChildProcesses:
    """Children by name, at most one running under each name.

    Args:
        on_exit: called once for each process that ended, on a thread of its own, after it was reaped.
    """

    def __init__(self, starter: Starter, on_exit: Callable[[Exit], None]) -> None:
        self._on_exit = on_exit
        self._starter = starter
        self._lock = threading.Lock()  # Serialises signalling and reaping, so that no reaped pid is signalled.
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
    ) -> int:
        """Start a process under this name unless one is running; returns its process id. See ``Spawner.start``."""
        with self._lock:
            if name in self._pids:
                return self._pids[name]
            # The Popen object is not kept: its own polling would reap the child.
            pid = self._starter.start(command, environment=environment, log=log, output=output)
            self._pids[name] = pid
            self.usage.setdefault(name, Usage()).starts += 1
        threading.Thread(target=self._watch, args=(name, pid), name=f"wait-{name}", daemon=True).start()
        return pid

    def pid(self, name: str) -> int | None:
        """Id of the process that is running under this name."""
        with self._lock:
            return self._pids.get(name)

    def names(self) -> list[str]:
        """Names under which a process is running."""
        with self._lock:
            return sorted(self._pids)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, if the process is running."""
        with self._lock:
            if name in self._pids:
                os.kill(self._pids[name], number)

    def kill_all(self) -> None:
        """Kill all processes and wait until they are reaped."""
        for name in self.names():
            self.signal(name, signal.SIGKILL)
        self.wait_all(timeout_s=10.0)

    def wait_all(self, timeout_s: float) -> bool:
        """Wait until no process is running; False if some still are after ``timeout_s`` seconds."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._pids, timeout=timeout_s)

    def sample(self) -> None:
        """Measure the memory of all processes; called about once a second.

        The kernel's own maximum for ended children is of no use for small services: it includes the moment between
        fork and exec, when a child still has the launcher's memory.
        """
        with self._lock:
            running = list(self._pids.items())
        for name, pid in running:
            usage = self.usage[name]
            usage.rss_max_bytes = max(usage.rss_max_bytes, _rss_peak_bytes(pid))

    def _watch(self, name: str, pid: int) -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._ended:
            kill_group(pid)  # What user code has started there.
            _, status, resources = os.wait4(pid, 0)
            del self._pids[name]
            usage = self.usage[name]
            usage.cpu_s += resources.ru_utime + resources.ru_stime
            self._ended.notify_all()
        self._on_exit(Exit(name=name, pid=pid, exit_code=os.waitstatus_to_exitcode(status)))


def own_usage() -> Usage:
    """What this process has used since the last call, without its children: a launcher may run several jobs."""
    global _counted_s
    times = os.times()
    used_s, _counted_s = times.user + times.system - _counted_s, times.user + times.system
    unit = 1 if sys.platform == "darwin" else 1024
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return Usage(starts=1, cpu_s=used_s, rss_max_bytes=peak_bytes)


def used_by(pid: int) -> Usage:
    """What a running process has used so far; nothing if it has just ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return Usage()
    return Usage(starts=1, cpu_s=times.user + times.system, rss_max_bytes=_rss_peak_bytes(pid))


def _rss_peak_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, psutil.Error):
        return 0  # It has just ended.
