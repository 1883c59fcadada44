"""What the launcher does when the master exits: restart it or end the run, when, and the message for the user."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.causes import classify_exit, describe_exit

_REFUSAL_LINES, _CRASH_LINES = 5, 8
"""Lines of the master's log in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLimits:
    """Limits and backoff.

    Attributes:
        crashes_max: crashes within ``window_s`` after which the master is not restarted any more.
        window_s: seconds for which an exit is remembered.
        backoff_s: the delay of a restart, doubled with every earlier exit in the window.
    """

    crashes_max: int = 5
    window_s: float = 60.0
    backoff_s: float = 0.5
    backoff_s_max: float = 10.0

    def delay_s(self, exits: int) -> float:
        """Seconds to wait after this number of exits in the window, the latest one included."""
        return min(self.backoff_s * 2.0 ** (exits - 1), self.backoff_s_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDecision:
    """What to do about an exit.

    Attributes:
        delay_s: seconds until the restart.
        ends: there is no restart. The run ends because of ``message``; without one, because the job has ended.
    """

    message: str = ""
    delay_s: float = 0.0
    ends: bool = False


class RestartPolicy:
    """Decides on restarts of the master from its recent exits."""

    def __init__(self, limits: RestartLimits | None = None) -> None:
        self._limits = limits or RestartLimits()
        self._unavailable: deque[float] = deque()
        self._crashes: deque[float] = deque()

    def decide(self, exit_code: int, now_s: float, last_error: Callable[[int], str]) -> RestartDecision:
        """Decide after an exit.

        Args:
            now_s: monotonic clock.
            last_error: reads a number of last lines of the master's log.
        """
        cause = classify_exit(exit_code)
        if cause is ExitCause.DISCONNECTED:
            # NATS or the storage is unreachable, or another master was active. Retry without limit, with backoff.
            delay_s = self._limits.delay_s(self._count(self._unavailable, now_s))
            message = f"The master exited and restarts in {delay_s:g} s: {last_error(1)}"
            return RestartDecision(message=message, delay_s=delay_s)
        if cause is ExitCause.FINISHED:
            return RestartDecision(ends=True)
        if cause is ExitCause.REFUSED:
            return RestartDecision(message=f"the master can't continue:\n{last_error(_REFUSAL_LINES)}", ends=True)
        if cause is ExitCause.PREEMPTED:
            # Kills from outside are unlimited: preemption is normal.
            return RestartDecision(message="The master was killed. Restarting it; training continues.")
        crashes = self._count(self._crashes, now_s)
        reason = f"({describe_exit(exit_code)})"
        if crashes > self._limits.crashes_max:
            return RestartDecision(
                message=f"the master keeps crashing {reason}:\n{last_error(_CRASH_LINES)}", ends=True
            )
        delay_s = self._limits.delay_s(crashes - 1) if crashes > 1 else 0.0
        message = f"The master crashed {reason}. Restarting it; training continues."
        return RestartDecision(message=message, delay_s=delay_s)

    def _count(self, exits: deque[float], now_s: float) -> int:
        while exits and now_s - exits[0] >= self._limits.window_s:
            exits.popleft()
        exits.append(now_s)
        return len(exits)
