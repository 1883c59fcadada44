"""Lost time: batches that were computed again, and workers that stall or start instead of working. Pure.

A worker's heartbeats count its ``progress``: finished batches of any purpose. Between two heartbeats, the worker was
working if the second one counts more batches. Time beyond the usual pace is a stall. A worker is starting before the
first progress of an incarnation; after it died, the time until its successor's first progress also counts as
starting. One that hung before its first progress was stalled. The log tells of the first batches earlier than
heartbeats, and of those of a job that ends before any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import NOBODY, Incarnation, PodName

GOODPUT_BATCHES_MIN = 100
"""Batches below which the goodput of a running job is not shown, because it would say nothing."""
PATIENCE = 5.0
"""A worker that takes up to this many times the mean time for one batch still counts as working."""
SLACK = 1.5
"""The same for many batches, which are not all slow at once."""
WORKING_S_MIN = 2.0
"""A worker counts as working for this many seconds, two heartbeats, whatever its pace."""


def goodput(absorbed: int, computed: int, computed_min: int = 1) -> float | None:
    """Batches absorbed by batches computed, at most 1; None if fewer than ``computed_min`` were computed."""
    return min(1.0, absorbed / computed) if computed >= computed_min else None


def goodput_of(run: RunMeasured | None, computed_min: int = 1) -> float | None:
    """``goodput`` of a run, as it was measured last; None: it is not measured yet."""
    return goodput(run.batches_absorbed, run.batches_computed, computed_min) if run else None


@dataclass(slots=True, kw_only=True)
class WorkerSeconds:
    """Seconds, summed over the expected workers."""

    working_s: float = 0.0
    stalled_s: float = 0.0
    starting_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Track:
    """One expected worker.

    Attributes:
        since_s: everything before this time is accounted for.
        progress: in its last heartbeat; 0: it is starting.
        pace_s: mean seconds per step of progress; 0: unknown.
        is_stalled: whether it has made no progress for so long that all further time until the next one is a stall.
    """

    since_s: float
    incarnation: Incarnation = NOBODY
    progress: float = 0.0
    pace_s: float = 0.0
    is_stalled: bool = False


class WorkerTime:
    """Sums up the workers' time from their heartbeats and exits."""

    def __init__(self) -> None:
        self.seconds = WorkerSeconds()
        self._tracks: dict[PodName, _Track] = {}

    def expect(self, workers: Collection[PodName], now_s: float) -> None:
        """These workers should be running from now on, and no others."""
        for name in [name for name in self._tracks if name not in workers]:
            self.on_exit(name, now_s)
            del self._tracks[name]
        for name in workers:
            self._tracks.setdefault(name, _Track(since_s=now_s))

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Account for a worker's time until this heartbeat; heartbeats of others are ignored."""
        track = self._tracks.get(heartbeat.name)
        if track is None:
            return
        if heartbeat.incarnation != track.incarnation:
            track.incarnation, track.progress = heartbeat.incarnation, 0.0
        progress = heartbeat.metrics.get("progress", 0.0)
        if progress > track.progress:
            self._account(track, heartbeat.time_s, progress - track.progress)
            track.progress, track.is_stalled = progress, False
        else:
            self._account_stall(track, heartbeat.time_s)

    def on_finished(self, worker: PodName, incarnation: Incarnation, batches: int, span: tuple[float, float]) -> None:
        """A worker has reported its first batches, perhaps before a heartbeat has counted them.

        Args:
            batches: how many.
            span: when it began the first one, and when it reported them, seconds since 1970.
        """
        track = self._tracks.get(worker)
        if track is None or track.progress or track.incarnation not in (NOBODY, incarnation):
            return
        track.incarnation = incarnation
        begun_s, now_s = span
        self._account(track, min(max(begun_s, track.since_s), now_s), 0.0)
        track.progress = float(batches)
        self._account(track, now_s, batches)

    def on_exit(self, name: PodName, now_s: float, *, has_hung: bool = False) -> None:
        """A worker ended; from now on its successor is starting."""
        track = self._tracks.get(name)
        if track is None:
            return
        if has_hung and track.progress == 0.0:
            self.seconds.stalled_s += max(0.0, now_s - track.since_s)
            track.since_s = max(track.since_s, now_s)
        self._account(track, now_s, 0.0)
        track.incarnation, track.progress, track.is_stalled = NOBODY, 0.0, False

    def stop(self, now_s: float) -> None:
        """Training has ended."""
        self.expect((), now_s)

    def _account_stall(self, track: _Track, now_s: float) -> None:
        """Account for a worker that is stuck while it is stuck, so that people see it then and not at its end."""
        usual_s = max(WORKING_S_MIN, PATIENCE * track.pace_s)
        if track.progress and track.pace_s and (track.is_stalled or now_s - track.since_s > usual_s):
            self._account(track, now_s, 0.0)
            track.is_stalled = True

    def _account(self, track: _Track, now_s: float, steps: float) -> None:
        span_s = max(0.0, now_s - track.since_s)
        track.since_s = max(track.since_s, now_s)
        if track.progress == 0.0:
            self.seconds.starting_s += span_s
            return
        if track.is_stalled:
            self.seconds.stalled_s += span_s
            return
        working_s = min(span_s, max(WORKING_S_MIN, track.pace_s * max(PATIENCE, SLACK * steps)))
        if steps and not track.pace_s:
            working_s = span_s  # There is no usual pace to compare with yet.
        self.seconds.working_s += working_s
        self.seconds.stalled_s += span_s - working_s
        if steps:
            pace_s = working_s / steps
            track.pace_s = 0.8 * track.pace_s + 0.2 * pace_s if track.pace_s else pace_s
