"""Who has not been heard of for too long: a pure watch over heartbeats.

Only time in which the watcher heard *itself* through the broker counts as silence of others: while the watcher was
frozen or the broker away, nobody else can be blamed.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Somebody who has not been heard of.

    Attributes:
        pod: its name.
        incarnation: the life that was last heard of.
        silent_s: seconds of listening without a sign of it.
    """

    pod: PodName
    incarnation: Incarnation
    silent_s: float


class SilenceWatch:
    """Adds up listening time and remembers when everybody was last heard.

    Args:
        own: name under which the watcher itself beats.
        limit_s: seconds of silence after which somebody is reported, once.
        interval_s: seconds between two heartbeats and between two calls of ``tick``.
    """

    def __init__(self, *, own: PodName, limit_s: float, interval_s: float) -> None:
        self._own = own
        self._limit_s = limit_s
        self._interval_s = interval_s
        self._listened_s = 0.0
        self._own_heard = False
        self._deaf_s = 0.0
        self._ticked_s: float | None = None
        self._heard: dict[tuple[PodName, Incarnation], float] = {}

    @property
    def deaf_s(self) -> float:
        """Seconds since the watcher last heard itself: so long the broker has been away."""
        return self._deaf_s

    def excuse_deafness(self) -> None:
        """Something is done about the broker: count its absence from zero again."""
        self._deaf_s = 0.0

    def hear(self, pod: PodName, incarnation: Incarnation) -> None:
        """A heartbeat has arrived."""
        if pod == self._own:
            self._own_heard = True
        else:
            self._heard[pod, incarnation] = self._listened_s

    def expect(self, pod: PodName, incarnation: Incarnation) -> None:
        """Somebody ought to be beating: if it was never heard, its silence begins now."""
        self._heard.setdefault((pod, incarnation), self._listened_s)

    def forget(self, pod: PodName) -> None:
        """A process has ended: nobody expects to hear it."""
        for key in [key for key in self._heard if key[0] == pod]:
            del self._heard[key]

    def tick(self, now_s: float) -> list[Silent]:
        """Let time pass.

        Args:
            now_s: monotonic clock, seconds.

        Returns:
            Those whose silence has become too long since the last call.
        """
        passed_s = 0.0 if self._ticked_s is None else min(now_s - self._ticked_s, 2 * self._interval_s)
        self._ticked_s = now_s
        if not self._own_heard:
            self._deaf_s += passed_s
            return []
        self._own_heard = False
        self._deaf_s = 0.0
        self._listened_s += passed_s
        silent = [
            Silent(pod=pod, incarnation=incarnation, silent_s=self._listened_s - heard_s)
            for (pod, incarnation), heard_s in self._heard.items()
            if self._listened_s - heard_s > self._limit_s
        ]
        for each in silent:
            del self._heard[each.pod, each.incarnation]
        return silent
