"""What a job's log and heartbeats say about its throughput and its ps. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticdl.controller.core import Curve
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.names import Incarnation, PodName, Service

SETTLE_S = 15.0
"""Seconds for which the number of workers must not have changed before their throughput counts."""
WINDOW_S = 10.0
"""Seconds over which the CPU time of a ps is averaged."""
_WEIGHT = 0.1
"""Of the latest value in the mean of a number of workers."""
_NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Numbers of workers for which a fitted curve has points."""


@dataclass(slots=True)
class Throughput:
    """Mean throughput by number of workers."""

    means: dict[int, float] = field(default_factory=dict)
    _workers: int = 0
    _since_s: float = 0.0

    def update(self, now_s: float, workers: int, records_per_s: float) -> None:
        """Note the present rate."""
        if workers != self._workers:
            self._workers, self._since_s = workers, now_s
        elif workers and records_per_s > 0 and now_s >= self._since_s + SETTLE_S:
            before = self.means.get(workers, records_per_s)
            self.means[workers] = before + _WEIGHT * (records_per_s - before)

    def curve(self) -> Curve:
        """The curve that fits best: each worker takes a part of the time of every batch for all others.

        With one number of workers nothing is known of the others: each adds as much as the first.
        """
        return fitted(self.means)


def fitted(means: dict[int, float]) -> Curve:
    """Fit ``speed = n / (a + b n)`` by least squares of ``n / speed``, with a > 0 and b >= 0."""
    if len(means) < 2:
        return Curve()
    points = [(workers, workers / speed) for workers, speed in means.items()]
    mean_x, mean_y = (sum(each) / len(points) for each in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
    first = mean_y - slope * mean_x
    if first <= 0:  # All that workers add is used up by what they cost.
        first, slope = min(y for _, y in points) * 1e-3, mean_y / mean_x
    return Curve(tuple((number, number / (first + slope * number)) for number in _NUMBERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PsLoad:
    """CPU seconds per second of a ps, averaged over all ``ps``, and how many workers trained meanwhile."""

    cpus: float
    ps: int
    workers: int


@dataclass(slots=True)
class PsCpu:
    """The CPU time of the ps."""

    _seen: dict[tuple[PodName, Incarnation], deque[tuple[float, float]]] = field(default_factory=dict)

    def update(self, heartbeats: Iterable[Heartbeat], workers: int) -> PsLoad | None:
        """The present load; None: unknown, because a ps has just started."""
        present = [each for each in heartbeats if each.service is Service.PS and "cpu_s" in each.metrics]
        self._seen = {key: seen for each in present if (seen := self._seen.get(key := (each.name, each.incarnation)))}
        rates = []
        for each in present:
            seen = self._seen.setdefault((each.name, each.incarnation), deque())
            if not seen or each.time_s > seen[-1][0]:
                seen.append((each.time_s, each.metrics["cpu_s"]))
            while len(seen) > 2 and seen[1][0] <= each.time_s - WINDOW_S:
                seen.popleft()
            (first_s, first), (last_s, last) = seen[0], seen[-1]
            if last_s >= first_s + WINDOW_S:
                rates.append(max(0.0, last - first) / (last_s - first_s))
        if not workers or not rates or len(rates) < len(present):
            return None
        return PsLoad(cpus=sum(rates) / len(rates), ps=len(rates), workers=workers)
