"""Where the workers' time went while the job trained: at work, stalled, or not there yet. Pure.

A worker's heartbeats count what it has done (``progress``: batches of any purpose that it has come to the end of).
Between two beats of which the second counts more it was at work; what that took beyond the usual pace is a stall.
Before the first progress of a life the worker is starting, and from its death on its successor is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.names import NOBODY, Incarnation, PodName

PATIENCE = 5.0
"""Times the mean pace within which a worker still counts as working on one batch."""
SLACK = 1.5
"""Times the mean pace within which it does so on many: they are not all slow at once."""
WORKING_S_MIN = 2.0
"""Seconds within which it does so whatever its pace: two beats."""


@dataclass(slots=True, kw_only=True)
class WorkerSeconds:
    """Sums over the workers that are wanted."""

    working_s: float = 0.0
    stalled_s: float = 0.0
    starting_s: float = 0.0

    def split(self, *, absorbed: int, computed: int) -> dict[str, float]:
        """The seconds by name; work is useful in the proportion in which computed batches were absorbed in the end.

        Args:
            absorbed: batches that counted, each once.
            computed: batches computed.
        """
        useful = min(1.0, absorbed / computed) if computed else 0.0
        return {
            "useful": self.working_s * useful,
            "recomputed": self.working_s * (1.0 - useful),
            "stalled": self.stalled_s,
            "starting": self.starting_s,
        }


@dataclass(slots=True, kw_only=True)
class _Track:
    """What is known of one name.

    Attributes:
        since_s: everything before is accounted for.
        incarnation: the life that was heard last.
        progress: what it had done by then; 0: it is starting.
        pace_s: mean seconds between two steps of progress; 0: unknown.
    """

    since_s: float
    incarnation: Incarnation = NOBODY
    progress: float = 0.0
    pace_s: float = 0.0


class TimeSplit:
    """Takes note of workers that are wanted, beat and die."""

    def __init__(self) -> None:
        self.seconds = WorkerSeconds()
        self._tracks: dict[PodName, _Track] = {}

    def want(self, workers: Collection[PodName], now_s: float) -> None:
        """These workers are wanted from now on."""
        for name in [name for name in self._tracks if name not in workers]:
            self.ended(name, now_s)
            del self._tracks[name]
        for name in workers:
            self._tracks.setdefault(name, _Track(since_s=now_s))

    def beat(self, beat: Beat) -> None:
        """A worker was heard; others are ignored."""
        track = self._tracks.get(beat.name)
        if track is None:
            return
        if beat.incarnation != track.incarnation:
            track.incarnation, track.progress = beat.incarnation, 0.0
        progress = beat.metrics.get("progress", 0.0)
        if progress > track.progress:
            self._account(track, beat.time_s, progress - track.progress)
            track.progress = progress

    def ended(self, name: PodName, now_s: float) -> None:
        """A worker has ended; its successor begins to start."""
        track = self._tracks.get(name)
        if track is not None:
            self._account(track, now_s, 0.0)
            track.incarnation, track.progress = NOBODY, 0.0

    def stop(self, now_s: float) -> None:
        """Training is over."""
        self.want((), now_s)

    def _account(self, track: _Track, now_s: float, steps: float) -> None:
        span_s = max(0.0, now_s - track.since_s)
        track.since_s = max(track.since_s, now_s)
        if track.progress == 0.0:
            self.seconds.starting_s += span_s
            return
        working_s = min(span_s, max(WORKING_S_MIN, track.pace_s * max(PATIENCE, SLACK * steps)))
        if steps and not track.pace_s:
            working_s = span_s  # Nothing is usual yet.
        self.seconds.working_s += working_s
        self.seconds.stalled_s += span_s - working_s
        if steps:
            pace_s = working_s / steps
            track.pace_s = 0.8 * track.pace_s + 0.2 * pace_s if track.pace_s else pace_s
