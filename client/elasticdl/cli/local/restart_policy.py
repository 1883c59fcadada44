"""Whether and when a master that has ended is started again: a policy, and what the user is told about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.cli.local.exits import describe_exit, exit_cause
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.process.exit_codes import EXIT_AWAY


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often and how fast.

    Attributes:
        faults_max: own faults within ``recent_s`` at which the master is given up.
        recent_s: seconds after which an end is forgotten.
        pause_s: the pause before a restart, doubled with every recent end before it.
        pause_s_max: the longest pause.
    """

    faults_max: int = 5
    recent_s: float = 60.0
    pause_s: float = 0.5
    pause_s_max: float = 10.0

    def wait_s(self, recent: int) -> float:
        """Seconds to wait after ``recent`` ends of the kind, this one included."""
        return min(self.pause_s * 2.0 ** (recent - 1), self.pause_s_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revival:
    """What is to be done.

    Attributes:
        text: what the user is told.
        wait_s: seconds until the restart.
        is_hopeless: it is not started again, and the job ends with ``text``.
    """

    text: str
    wait_s: float = 0.0
    is_hopeless: bool = False


class Revivals:
    """The master's recent ends.

    Args:
        policy: how often and how fast.
    """

    def __init__(self, policy: RestartPolicy | None = None) -> None:
        self._policy = policy or RestartPolicy()
        self._away: deque[float] = deque()
        self._faults: deque[float] = deque()

    def after(self, exit_code: int, now_s: float, last_word: Callable[[int], str]) -> Revival:
        """What follows from an end that was neither the job's nor a refusal.

        Args:
            exit_code: as in ``Exit``.
            now_s: monotonic clock.
            last_word: reads so many last lines of the master's log.
        """
        if exit_code == EXIT_AWAY:
            # Broker or storage stay away, or another master was there: as often as it takes, but never in a hurry.
            wait_s = self._policy.wait_s(self._note(self._away, now_s))
            text = f"the master can't work for now and is started again in {wait_s:g} s: {last_word(1)}"
            return Revival(text=text, wait_s=wait_s)
        if exit_cause(exit_code) is ExitCause.OUTSIDE:
            # Whoever kills it from outside may do so as often as they like.
            return Revival(text="the master was killed and is started again; training goes on")
        faults = self._note(self._faults, now_s)
        died = f"({describe_exit(exit_code)})"
        if faults > self._policy.faults_max:
            return Revival(text=f"the master keeps dying {died}:\n{last_word(8)}", is_hopeless=True)
        wait_s = self._policy.wait_s(faults - 1) if faults > 1 else 0.0
        return Revival(text=f"the master died {died} and is started again; training goes on", wait_s=wait_s)

    def _note(self, ends: deque[float], now_s: float) -> int:
        while ends and now_s - ends[0] >= self._policy.recent_s:
            ends.popleft()
        ends.append(now_s)
        return len(ends)
