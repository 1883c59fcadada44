"""The failure detector: decides from heartbeats which processes have failed. Pure.

Time counts only while the observer receives its *own* heartbeats through NATS. While the observer is frozen or NATS is
unreachable, missing heartbeats prove nothing about other processes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedHeartbeats:
    """A process whose heartbeats are missing; ``silent_s``: seconds without a heartbeat, of the time that counts."""

    pod: PodName
    incarnation: Incarnation
    silent_s: float


class FailureDetector:
    """Remembers when each process sent its last heartbeat, in time that counts.

    Args:
        own: name under which the observer sends heartbeats itself.
        timeout_s: seconds without a heartbeat after which a process is reported, once.
        interval_s: seconds between two heartbeats and between two calls of ``tick``.
        unannounced: processes that are expected from their first heartbeat on. Those of others that ``expect`` has not
            named are ignored: anyone may invent a name.
    """

    def __init__(
        self, *, own: PodName, timeout_s: float, interval_s: float, unannounced: Collection[PodName] = ()
    ) -> None:
        self._unannounced = unannounced
        self._own = own
        self._timeout_s = timeout_s
        self._interval_s = interval_s
        self._observed_s = 0.0
        self._own_received = False
        self._unreachable_s = 0.0
        self._ticked_s: float | None = None
        self._last: dict[tuple[PodName, Incarnation], float] = {}

    def on_heartbeat(self, pod: PodName, incarnation: Incarnation) -> None:
        """Record a heartbeat."""
        if pod == self._own:
            self._own_received = True
        elif (pod, incarnation) in self._last or pod in self._unannounced:
            self._last[pod, incarnation] = self._observed_s

    def expect(self, pod: PodName, incarnation: Incarnation) -> None:
        """Expect heartbeats of a process; if it has sent none, its timeout begins now."""
        self._last.setdefault((pod, incarnation), self._observed_s)

    def forget(self, pod: PodName) -> None:
        """Expect no heartbeats of a process that has ended."""
        for key in [key for key in self._last if key[0] == pod]:
            del self._last[key]

    def tick(self, now_s: float) -> list[MissedHeartbeats]:
        """Advance the time (monotonic); returns the processes whose timeout has passed since the last call."""
        passed_s = 0.0 if self._ticked_s is None else min(now_s - self._ticked_s, 2 * self._interval_s)
        self._ticked_s = now_s
        if not self._own_received:
            self._unreachable_s += passed_s
            return []
        self._own_received = False
        self._unreachable_s = 0.0
        self._observed_s += passed_s
        missed = [
            MissedHeartbeats(pod=pod, incarnation=incarnation, silent_s=self._observed_s - last_s)
            for (pod, incarnation), last_s in self._last.items()
            if self._observed_s - last_s > self._timeout_s
        ]
        for each in missed:
            del self._last[each.pod, each.incarnation]
        return missed

    def broker_timed_out(self) -> bool:
        """Whether NATS has not delivered the observer's own heartbeats for ``timeout_s``; reported once per timeout."""
        if self._unreachable_s <= self._timeout_s:
            return False
        self._unreachable_s = 0.0
        return True
