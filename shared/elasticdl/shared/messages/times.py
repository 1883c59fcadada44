"""A worker's time by part of its work, as events carry it."""

from __future__ import annotations

from collections.abc import Mapping
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

    def add_to(self, seconds: dict[str, float]) -> None:
        """Add the seconds of each part, and their sum as ``total``, to others."""
        for part, us in zip(_PARTS, _us_of(self), strict=True):
            if us:
                seconds[part] = seconds.get(part, 0.0) + us / 1e6
        seconds["total"] = seconds.get("total", 0.0) + self.total_s


_PARTS = tuple(each.name.removesuffix("_us") for each in fields(Times))
_us_of = attrgetter(*(each.name for each in fields(Times)))
