"""What ``fold`` adds up: the seconds of each cause, and the time of each worker until it is charged. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.views.wall_time.causes import Cause
from elasticdl.views.wall_time.slow_workers import Pace
from elasticdl.views.wall_time.values import Part

EVIDENCE_MAX = 3
"""Events that are named for a cause: those that it took most of its time from."""


@dataclass(slots=True)
class Sum:
    """Seconds of a cause; ``largest``: the events that most of them are from, with the seconds of each.

    ``least``: the smallest of these, once there are enough of them; others need more to replace it.
    """

    seconds: float = 0.0
    largest: dict[int, float] = field(default_factory=dict)
    least: float = 0.0

    def add(self, seconds: float, seq: int) -> None:
        """Seconds that an event proves; 0: none does."""
        self.seconds += seconds
        if seconds <= self.least and seq not in self.largest:
            return
        if seq in self.largest:
            self.largest[seq] += seconds
        elif seq:
            if len(self.largest) >= EVIDENCE_MAX:
                del self.largest[min(self.largest, key=self.largest.__getitem__)]
            self.largest[seq] = seconds
        self.least = min(self.largest.values()) if len(self.largest) >= EVIDENCE_MAX else 0.0

    def part(self, cause: Cause) -> Part:
        """The sum as a part of the wall time."""
        ordered = sorted(self.largest.items(), key=lambda each: (-each[1], each[0]))
        return Part(cause=cause, seconds=self.seconds, evidence=tuple(each for each in ordered if each[1] > 0.0))


@dataclass(slots=True, kw_only=True)
class Worker:
    """A place for a worker. Its time until ``at_s`` is charged.

    Attributes:
        at_s, at_share, at_lost_ps: the clocks of the job when its time was charged last.
        cause: what its time is charged to while it is not ready; ``seq``: the event that began it.
        was_lost: whether a former process of it has ended.
        is_ready: whether its process takes tasks; ``has_finished``: whether it has finished one.
        held: tasks that it has taken and not finished.
        idle: its share of time without a task since then; ``idle_from``: its share when it got idle.
        stalled: its share of time without progress; ``stalled_from``: when that began, negative: it makes progress.
    """

    pace: Pace
    at_s: float = 0.0
    at_share: float = 0.0
    at_lost_ps: float = 0.0
    cause: Cause = Cause.STARTING
    seq: int = 0
    was_lost: bool = False
    is_ready: bool = False
    has_finished: bool = False
    held: int = 0
    idle: float = 0.0
    idle_from: float = 0.0
    stalled: float = 0.0
    stalled_from: float = -1.0
    stalled_seq: int = 0

    @property
    def starting(self) -> Cause:
        """What its start is charged to."""
        return Cause.LOST_WORKER if self.was_lost else Cause.STARTING
