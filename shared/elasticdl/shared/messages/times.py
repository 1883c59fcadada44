"""A worker's time by part of its work, as events carry it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A worker's time by part of its work, in microseconds."""

    read_us: int = 0
    feed_us: int = 0
    pull_us: int = 0
    compute_us: int = 0
    push_us: int = 0
    wait_us: int = 0
    export_us: int = 0

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> Times:
        """From seconds by part; an unknown part is an error."""
        return cls(**{f"{part}_us": round(spent_s * 1e6) for part, spent_s in seconds.items()})

    @property
    def total_s(self) -> float:
        """The sum of all parts in seconds."""
        us = self.read_us + self.feed_us + self.pull_us + self.compute_us + self.push_us + self.wait_us + self.export_us
        return us / 1e6

    @property
    def exchange_s(self) -> float:
        """Seconds in which a worker exchanges weights and gradients with the ps, or waits until it may."""
        return (self.pull_us + self.push_us + self.wait_us) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """When one batch of a task was worked on, part by part.

    Attributes:
        batch: its number in the task.
        times: how long each part took.
        ended: how long before the time of the record each part that took time ended.
    """

    batch: int
    times: Times
    ended: Times


PARTS = tuple(each.name.removesuffix("_us") for each in fields(Times))
"""Names of the parts."""
us_of: Callable[[Times], tuple[int, ...]] = attrgetter(*(each.name for each in fields(Times)))
"""Their microseconds, in the order of ``PARTS``."""
