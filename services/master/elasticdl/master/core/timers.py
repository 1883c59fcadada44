"""The names of the core's timers. A running timer is in ``State.timers`` and ends with a TimerFired event.

The log records the names, so a name that was used once keeps its meaning.
"""

from __future__ import annotations

from elasticdl.shared.names import PodName

EVALUATION = "evaluation"
"""Triggers an evaluation by the clock."""
SPECULATION = "speculation"
"""The oldest running task counts as slow."""
STOP = "stop"
"""The time limit for stopping in an orderly way."""
FREEZE = "move"
"""The time limit for a move's frozen donor."""
MOVE_PAUSE = "move again"
"""Delays the next move."""
PIN_PAUSE = "order pins again"
"""Delays the next evaluation."""
SNAPSHOT_PAUSE = "order snapshots again"
"""Delays the next snapshot order."""
READ_PAUSE = "read ledgers again"
"""Delays the next reading of ledgers."""

RETRY_S = 1.0
"""Seconds before a command that could not be run is decided again."""

_START = "start "
_RESTART = "restart "
_PENDING = "pending "


def start_of(pod: PodName) -> str:
    """The timer that limits the time from a process's start to its being ready."""
    return _START + pod


def restart_of(pod: PodName) -> str:
    """The timer that delays the restart of a pod."""
    return _RESTART + pod


def pending_of(pod: PodName) -> str:
    """The timer that limits the time for which a pod may be pending."""
    return _PENDING + pod


def pod_of_pending(timer: str) -> PodName | None:
    """The pod of a ``pending_of`` timer; None for other timers."""
    return PodName(timer.removeprefix(_PENDING)) if timer.startswith(_PENDING) else None


def pod_of_start(timer: str) -> PodName | None:
    """The pod of a ``start_of`` timer; None for other timers."""
    return PodName(timer.removeprefix(_START)) if timer.startswith(_START) else None
