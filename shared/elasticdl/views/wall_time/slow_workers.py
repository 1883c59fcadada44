"""Workers that are slower than the others: how much of their time that has cost. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from elasticdl.shared.names import PodName
from elasticdl.views.wall_time.causes import Cause

SLOW = 1.5
"""A worker is slow if a batch takes it this many times as long as the others' median."""
BATCHES_MIN = 16
"""Batches below which nothing is said about the pace of a worker."""


@dataclass(slots=True)
class Pace:
    """What a worker's batches have taken.

    Attributes:
        shares: by cause of ``WORK``, the share of the job's time.
        seconds: between its reports; ``own_s``: of these, its work without waiting for other workers' updates.
        batches: that it reported.
        slowest: the report with most seconds for a batch, and these seconds.
    """

    shares: dict[Cause, float] = field(default_factory=dict)
    seconds: float = 0.0
    own_s: float = 0.0
    batches: int = 0
    slowest: tuple[float, int] = (0.0, 0)

    def report(self, batches: int, seconds: float, own_s: float, seq: int) -> None:
        """It has reported batches."""
        self.batches += batches
        self.own_s += own_s
        self.seconds += seconds
        if batches and seconds / batches > self.slowest[0]:
            self.slowest = (seconds / batches, seq)

    @property
    def batch_s(self) -> float:
        """Mean seconds for a batch; 0: too few are known."""
        return self.seconds / self.batches if self.batches >= BATCHES_MIN else 0.0

    @property
    def own_batch_s(self) -> float:
        """The same of its own work. A bound on staleness lets the others wait, so that all have one pace."""
        return self.own_s / self.batches if self.batches >= BATCHES_MIN else 0.0


def without_slow_workers(paces: Mapping[PodName, Pace]) -> Iterator[tuple[Cause, float, int]]:
    """What to move between causes because of slow workers: (cause, seconds, event). The seconds sum to 0."""
    known = {name: pace for name, pace in paces.items() if pace.batch_s}
    for usual_s, pace in _with_usual(known.values(), lambda pace: pace.batch_s):
        if not usual_s or pace.batch_s < SLOW * usual_s:
            continue
        part = 1.0 - usual_s / pace.batch_s
        for cause, share in pace.shares.items():
            yield cause, -part * share, 0
            yield Cause.SLOW_WORKER, part * share, pace.slowest[1]
    slow: list[Pace] = []
    waited = 0.0
    for usual_s, pace in _with_usual(known.values(), lambda pace: pace.own_batch_s):
        if 0.0 < SLOW * usual_s <= pace.own_batch_s:
            slow.append(pace)
        else:
            waited += max(0.0, pace.shares.get(Cause.OTHER_WORKERS, 0.0))
    if slow and waited:  # The others' updates that it waits for are those of the slow.
        yield Cause.OTHER_WORKERS, -waited, 0
        for each in slow:
            yield Cause.SLOW_WORKER, waited / len(slow), each.slowest[1]


def _with_usual(paces: Iterable[Pace], measure: Callable[[Pace], float]) -> Iterator[tuple[float, Pace]]:
    """Each worker with the median of the others, 0 if there are none. They are sorted once: there may be thousands."""
    known = list(paces)
    ordered = sorted(map(measure, known))
    for pace in known:
        own = bisect_left(ordered, measure(pace))
        middle, is_odd = divmod(len(ordered) - 1, 2)
        nearest = range(middle if is_odd else middle - 1, middle + 1)
        others = [ordered[place + (place >= own)] for place in nearest if len(ordered) > 1]
        yield sum(others) / max(1, len(others)), pace
