"""Snapshot cadence and retention: when a ps takes snapshots (checkpoints) by itself, and how long it keeps them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """Snapshot cadence, chain length and retention.

    Attributes:
        interval_s: seconds between two snapshots; 0 disables the timer. A ps that absorbed nothing writes nothing.
        first_s: seconds from the start of a process to its first snapshot. The pauses double from there up to
            ``interval_s``, so a ps that dies more often than every ``interval_s`` keeps most of what it learned.
        steps: take an additional snapshot at every multiple of N steps; 0 disables.
        chain_max: length of a chain of incremental snapshots; the next one is full.
        chains_kept: number of whole chains to keep, in case an object of the newest one is damaged.
        retry_s: seconds before a snapshot that the store rejected is tried again.
    """

    interval_s: float
    first_s: float = 5.0
    steps: int = 0
    chain_max: int = 8
    chains_kept: int = 2
    retry_s: float = 1.0

    def pause_s(self, taken: int) -> float:
        """Seconds until the next snapshot by the timer, after ``taken`` ones in this process; 0: no timer."""
        return min(self.interval_s, self.first_s * 2.0 ** min(taken, 16))

    def next_step(self, step: int) -> int:
        """The next multiple of ``steps`` after a step; 0: no snapshots by steps."""
        return (step // self.steps + 1) * self.steps if self.steps else 0
