"""Why a child process ended: classified by its exit code and by the kernel's count of out-of-memory kills."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from elasticdl.shared.messages.events import ExitCause

_COUNTER = Path("/proc/vmstat")
_OWN_FAULT_SIGNALS = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)


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


def exit_cause(exit_code: int, *, out_of_memory: bool = False) -> ExitCause:
    """Classify an exit code.

    SIGKILL counts as a kill from outside unless the kernel was out of memory. To take a preemption for a fault of the
    process would be the worse mistake.

    Args:
        exit_code: the exit code, or minus the number of the signal that ended the process.
        out_of_memory: whether the kernel killed it because memory ran out.
    """
    if out_of_memory:
        return ExitCause.OWN_FAULT
    match exit_code:
        case os.EX_TEMPFAIL:
            return ExitCause.OUTSIDE  # NATS, a ps or the storage was unreachable; the process did nothing wrong.
        case 0:
            return ExitCause.FINISHED
        case 1 | 2:
            return ExitCause.REFUSED
        case code if code < 0:
            return ExitCause.OWN_FAULT if -code in _OWN_FAULT_SIGNALS else ExitCause.OUTSIDE
        case _:
            return ExitCause.OWN_FAULT


def describe_exit(exit_code: int, cause: ExitCause | None = None) -> str:
    """``exit code 3``, ``SIGSEGV`` or ``out of memory``, for messages."""
    if exit_code == -signal.SIGKILL and cause is ExitCause.OWN_FAULT:
        return "SIGKILL by the kernel: out of memory"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


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
