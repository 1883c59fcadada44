"""Pod instances on one machine: process id and start time, because process ids are used again."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.shared.names import PodInstance

_PROCESSES = Path("/proc")
_START_TIME = 19
"""Position of the start time in ``/proc/PID/stat``, counted from behind the name: clock ticks since the boot."""


def instance_of(pid: int) -> PodInstance:
    """The instance of a process; the process itself and its parent get the same one."""
    return PodInstance(f"{pid}-{_start_time(pid)}")


def own_instance() -> PodInstance:
    """The instance of this process."""
    return instance_of(os.getpid())


def pid_of(instance: PodInstance) -> int:
    """The process id of an instance whose process is running; 0: it has ended, or the instance has no process."""
    pid = instance.partition("-")[0]
    try:
        return int(pid) if pid.isdigit() and instance_of(int(pid)) == instance else 0
    except ProcessLookupError:
        return 0


def _start_time(pid: int) -> str:
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text()
    except FileNotFoundError:
        if _PROCESSES.joinpath("self").exists():
            raise ProcessLookupError(f"process {pid} is not running") from None
        return _start_time_without_proc(pid)
    return text.rpartition(")")[2].split()[_START_TIME]


def _start_time_without_proc(pid: int) -> str:
    import psutil  # Not on Linux, where each command would pay for it.

    try:
        return f"{psutil.Process(pid).create_time():.0f}"
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(f"process {pid} is not running") from error
