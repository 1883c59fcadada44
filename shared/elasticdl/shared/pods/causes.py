"""Exit causes: why a pod ended, in one classification table for all platforms."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_HUNG, EXIT_NO_MEMORY, EXIT_REFUSED

OUT_OF_MEMORY = "OOMKilled"
DELETED = "Deleted"
"""Not a word of Kubernetes, which names no reason: a user has deleted the pod."""

_BY_REASON: Mapping[str, ExitCause] = {
    OUT_OF_MEMORY: ExitCause.OUT_OF_MEMORY,
    DELETED: ExitCause.PREEMPTED,
    "Evicted": ExitCause.PREEMPTED,
    "Preempting": ExitCause.PREEMPTED,
    "PreemptionByScheduler": ExitCause.PREEMPTED,
    "EvictionByEvictionAPI": ExitCause.PREEMPTED,
    "DeletionByTaintManager": ExitCause.PREEMPTED,
    "TerminationByKubelet": ExitCause.PREEMPTED,
    "Terminated": ExitCause.PREEMPTED,
    "ContainerStatusUnknown": ExitCause.NODE_LOST,
    "DeletionByPodGC": ExitCause.NODE_LOST,
    "NodeLost": ExitCause.NODE_LOST,
    "NodeShutdown": ExitCause.NODE_LOST,
}
"""Reasons that a platform gives, in the words of Kubernetes: container and pod reasons, and DisruptionTarget."""

_BY_EXIT_CODE: Mapping[int, ExitCause] = {
    os.EX_OK: ExitCause.FINISHED,
    EXIT_REFUSED: ExitCause.REFUSED,
    2: ExitCause.REFUSED,  # Python's own: the command line is wrong.
    EXIT_AWAY: ExitCause.DISCONNECTED,
    EXIT_HUNG: ExitCause.HUNG,
    EXIT_NO_MEMORY: ExitCause.OUT_OF_MEMORY,
}
"""All others are faults of the process."""

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
"""All others were sent from outside. To take a preemption for a fault of the process would be the worse mistake."""

_ORDERED_ENDS = frozenset({ExitCause.FINISHED, ExitCause.PREEMPTED, ExitCause.DISCONNECTED})
"""What the end of a pod that was deleted looks like."""


def classify_exit(exit_code: int, reason: str = "", *, is_deleted: bool = False) -> ExitCause:
    """Why a pod ended.

    Args:
        is_deleted: whether ``Pods.delete`` was called for it.
    """
    if reason in _BY_REASON:
        return _BY_REASON[reason]
    if exit_code < 0:
        cause = ExitCause.OWN_FAULT if -exit_code in _OWN_FAULT_SIGNALS else ExitCause.PREEMPTED
    else:
        cause = _BY_EXIT_CODE.get(exit_code, ExitCause.OWN_FAULT)
    return ExitCause.STOPPED if is_deleted and cause in _ORDERED_ENDS else cause


def describe_exit(exit_code: int, cause: ExitCause | None = None) -> str:
    """``exit code 3``, ``SIGSEGV``, ``out of memory``, ``node lost``... for messages."""
    match cause:
        case ExitCause.OUT_OF_MEMORY:
            return "out of memory"
        case ExitCause.NODE_LOST:
            return "node lost"
        case ExitCause.HUNG:
            return "batch deadline exceeded"
        case _:
            pass
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
