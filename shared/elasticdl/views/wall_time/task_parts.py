"""Splits the time of a worker on its tasks by what it did, from the times that it reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.shared.messages.events import TaskFinished
from elasticdl.views.wall_time.causes import Cause

# Millions of reports are split. Looking up a member of an enumeration costs as much as ten other steps.
_COMPUTING, _DATA, _PS, _OTHER_WORKERS = Cause.COMPUTING, Cause.DATA, Cause.PS, Cause.OTHER_WORKERS
_RECOMPUTED, _STARTING, _OTHER = Cause.RECOMPUTED, Cause.STARTING, Cause.OTHER
_BOTTLENECK = 0.9
"""A worker whose feeding takes this part of its time is bound by it: everything else overlaps with the feeding."""


@dataclass(slots=True)  # One is made for each report: frozen ones take five times as long, names twice as long.
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


def split(work: TaskWork, finished: Sequence[tuple[TaskFinished, bool]]) -> list[tuple[Cause, float]]:
    """The parts of the time by cause, without those of no time; they sum to ``work.share``.

    Args:
        finished: the tasks, each with whether it had been finished before.
    """
    parts: list[tuple[Cause, float]] = []
    left = work.share
    if work.idle > 0.0 or work.aside > 0.0 or work.stalled > 0.0:  # Few reports have such time.
        for cause, most in (
            (Cause.NO_TASK, work.idle),
            (Cause.EVALUATING, work.aside),
            (Cause.STALLED, work.stalled),
        ):
            if most > 0.0 and left > 0.0:
                part = min(left, most)
                left -= part
                parts.append((cause, part))
    away = max(0.0, work.lost_ps)
    if len(finished) == 1:
        _add_one(parts, finished[0], left, away, work)
        return parts
    totals = [each.times.total_s for each, _ in finished]
    total_s = sum(totals)
    for one, its_s in zip(finished, totals, strict=True):
        portion = its_s / total_s if total_s else 1.0 / len(finished)
        _add_one(parts, one, left * portion, away * portion, work)
    return parts


def _add_one(
    parts: list[tuple[Cause, float]], finished: tuple[TaskFinished, bool], share: float, away: float, work: TaskWork
) -> None:
    """Add the parts of the time of one task."""
    task, repeated = finished
    times, rate = task.times, work.rate
    per_us = rate / 1e6
    computing = times.compute_us * per_us - work.stalled
    if computing < 0.0:
        computing = 0.0
    elif computing > share:
        computing = share
    left = share - computing
    if away > 0.0:
        lost_ps = min(left, away)
        left -= lost_ps
        parts.append((Cause.LOST_PS, lost_ps))
    data = (times.read_us + times.feed_us) * per_us
    ps, others = (times.pull_us + times.push_us) * per_us, times.wait_us * per_us
    if data >= _BOTTLENECK * share:
        ps = others = 0.0
    whole = data + ps + others
    if computing > 0.0:
        parts.append((_RECOMPUTED if repeated else _COMPUTING, computing))
    if whole > 0.0 and left > 0.0:
        part = left / whole if whole > left else 1.0
        left = left - whole if whole < left else 0.0
        if data > 0.0:
            parts.append((_RECOMPUTED if repeated else _DATA, data * part))
        if ps > 0.0:
            parts.append((_RECOMPUTED if repeated else _PS, ps * part))
        if others > 0.0:
            parts.append((_RECOMPUTED if repeated else _OTHER_WORKERS, others * part))
    if left > 0.0:
        parts.append((_STARTING if work.is_first else _OTHER, left))
