"""Why a child process ended, judged from how it ended."""

from __future__ import annotations

import os
import signal

from elasticdl.shared.messages.events import ExitCause

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


def exit_cause(exit_code: int, *, out_of_memory: bool = False) -> ExitCause:
    """Classify an exit code.

    A SIGKILL counts as one from outside, unless the kernel gave it: taking a preemption for a fault of the process
    would be the worse mistake.

    Args:
        exit_code: the exit code, or minus the number of the signal that ended it.
        out_of_memory: whether the kernel killed it because memory ran out.
    """
    if out_of_memory:
        return ExitCause.OWN_FAULT
    match exit_code:
        case os.EX_TEMPFAIL:
            # Broker or ps stayed away: nothing that the process itself did.
            return ExitCause.OUTSIDE
        case 0:
            return ExitCause.FINISHED
        case 1 | 2:
            return ExitCause.REFUSED
        case code if code < 0:
            return ExitCause.OWN_FAULT if -code in _OWN_FAULT_SIGNALS else ExitCause.OUTSIDE
        case _:
            return ExitCause.OWN_FAULT


def describe_exit(exit_code: int, cause: ExitCause | None = None) -> str:
    """``exit code 3`` or ``SIGSEGV``, for people."""
    if exit_code == -signal.SIGKILL and cause is ExitCause.OWN_FAULT:
        return "SIGKILL by the kernel: memory ran out"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
