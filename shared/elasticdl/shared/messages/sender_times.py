"""Which times count by the clock of another process, which may be wrong by any amount."""

from __future__ import annotations

SKEW_S_MAX = 60.0
"""Seconds by which the clocks of two machines may differ. NTP keeps them within milliseconds."""


def agreed_s(time_s: float, now_s: float) -> float:
    """A time of another process if it can be right, otherwise the own time.

    Args:
        time_s: by the clock of the other process, seconds since 1970.
        now_s: by the own clock.
    """
    return time_s if abs(time_s - now_s) <= SKEW_S_MAX else now_s
