"""What the launcher does when the master exits: restart it or end the run, when, and the message for the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.causes import classify_exit, describe_exit
from elasticdl.shared.process.retries import Backoff, RecentFailures

_BACKOFF = Backoff(first_s=0.5, max_s=10.0)
_REFUSAL_LINES, _CRASH_LINES = 5, 8
"""Lines of the master's log in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLimits:
    """Limits and backoff of the processes of a job that no master restarts: the master, and its NATS server.

    Attributes:
        crashes_max: crashes within ``window_s`` after which a process is not restarted any more.
        window_s: seconds for which an exit is remembered.
        backoff: the delays of restarts.
    """

    crashes_max: int = 5
    window_s: float = 60.0
    backoff: Backoff = _BACKOFF


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDecision:
    """What to do about an exit.

    Attributes:
        ends: there is no restart. The run ends because of ``message``; without one, because the job has ended.
    """

    message: str = ""
    delay_s: float = 0.0
    ends: bool = False


class RestartPolicy:
    """Decides on restarts of the master from its recent exits."""

    def __init__(self, limits: RestartLimits | None = None) -> None:
        self._limits = limits or RestartLimits()
        self._unavailable = RecentFailures(self._limits.window_s)
        self._crashes = RecentFailures(self._limits.window_s)

    def decide(self, exit_code: int, now_s: float, last_error: Callable[[int], str]) -> RestartDecision:
        """Decide after an exit; ``now_s``: monotonic clock."""
        cause = classify_exit(exit_code)
        if cause is ExitCause.DISCONNECTED:
            # NATS or the storage is unreachable, or another master was active. Retry without limit, with backoff.
            delay_s = self._limits.backoff.pause_s(self._unavailable.count(now_s))
            message = f"The master exited and restarts in {delay_s:g} s: {last_error(1)}"
            return RestartDecision(message=message, delay_s=delay_s)
        if cause is ExitCause.FINISHED:
            return RestartDecision(ends=True)
        if cause is ExitCause.REFUSED:
            return RestartDecision(message=f"the master can't continue:\n{last_error(_REFUSAL_LINES)}", ends=True)
        if cause is ExitCause.PREEMPTED:
            # Kills from outside are unlimited: preemption is normal.
            return RestartDecision(message="The master was killed. Restarting it; training continues.")
        crashes = self._crashes.count(now_s)
        reason = f"({describe_exit(exit_code)})"
        if crashes > self._limits.crashes_max:
            return RestartDecision(
                message=f"the master keeps crashing {reason}:\n{last_error(_CRASH_LINES)}", ends=True
            )
        delay_s = self._limits.backoff.pause_s(crashes - 1) if crashes > 1 else 0.0
        message = f"The master crashed {reason}. Restarting it; training continues."
        return RestartDecision(message=message, delay_s=delay_s)
