"""Splits the time of a worker on its tasks by what it did, from the times that it reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elasticdl.shared.messages.events import TaskFinished
from elasticdl.views.wall_time.causes import Cause

_BOTTLENECK = 0.9
"""A worker whose feeding takes this part of its time is bound by it: everything else overlaps with the feeding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """The time since a worker's last report. All but ``rate`` are shares of the job's time, in seconds.

    Attributes:
        share: all of it.
        rate: its share of a second.
        idle: it had no task.
        aside: it did tasks of another purpose.
        stalled: a batch made no progress.
        lost_ps: a ps was away.
        is_first: its first report, so it has built and compiled the model meanwhile.
    """

    share: float
    rate: float
    idle: float
    aside: float
    stalled: float
    lost_ps: float
    is_first: bool


def split(work: TaskWork, finished: Sequence[tuple[TaskFinished, bool]]) -> Iterator[tuple[Cause, float]]:
    """The parts of the time by cause; they sum to ``work.share``.

    Args:
        finished: the tasks, each with whether it had been finished before.
    """
    left = work.share
    for cause, most in (
        (Cause.NO_TASK, work.idle),
        (Cause.EVALUATING, work.aside),
        (Cause.STALLED, work.stalled),
    ):
        part = min(left, max(0.0, most))
        left -= part
        yield cause, part
    totals = [each.times.seconds["total"] for each, _ in finished]
    total_s = sum(totals)
    away = max(0.0, work.lost_ps)
    for (each, repeated), its_s in zip(finished, totals, strict=True):
        portion = its_s / total_s if total_s else 1.0 / len(finished)
        yield from _one(each, left * portion, away * portion, work, repeated=repeated)


def _one(
    task: TaskFinished, share: float, away: float, work: TaskWork, *, repeated: bool
) -> Iterator[tuple[Cause, float]]:
    """The parts of the time of one task."""
    seconds = task.times.seconds
    stalled_s = work.stalled / work.rate if work.rate else 0.0
    computing = min(share, max(0.0, seconds.get("compute", 0.0) - stalled_s) * work.rate)
    left = share - computing
    lost_ps = min(left, away)
    left -= lost_ps
    lanes = {
        Cause.DATA: (seconds.get("read", 0.0) + seconds.get("feed", 0.0)) * work.rate,
        Cause.PS: (seconds.get("pull", 0.0) + seconds.get("push", 0.0)) * work.rate,
        Cause.OTHER_WORKERS: seconds.get("wait", 0.0) * work.rate,
    }
    if lanes[Cause.DATA] >= _BOTTLENECK * share:
        lanes = {Cause.DATA: lanes[Cause.DATA]}
    waited = min(left, sum(lanes.values()))
    whole = sum(lanes.values()) or 1.0
    yield Cause.LOST_PS, lost_ps
    yield Cause.RECOMPUTED if repeated else Cause.COMPUTING, computing
    for cause, each in lanes.items():
        yield Cause.RECOMPUTED if repeated else cause, waited * each / whole
    yield Cause.STARTING if work.is_first else Cause.OTHER, left - waited
