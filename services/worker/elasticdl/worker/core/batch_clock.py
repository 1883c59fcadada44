"""Deadlines: which batch has been in the code of the model file for too long."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.job.spec import FIRST_BATCH_FACTOR
from elasticdl.shared.messages.events import RunningBatch

SLOW_S_MAX = 60.0
"""Seconds on one batch after which people are told, at most; with a short deadline, half of it."""
_TICK_S_MAX = 1.0


class Work(Enum):
    """What a worker does with a batch, or with a task that has no batches, or before its first one."""

    START = "loading the model file and building the model"
    READ = "reading and feeding"
    TRAIN = "training"
    EVALUATE = "evaluating"
    PREDICT = "predicting"
    CALLBACKS = "running the callbacks"
    METRICS = "computing the metrics"
    EXPORT = "exporting the model"

    @property
    def is_compiled(self) -> bool:
        """Whether TensorFlow compiles the model when a process does it first."""
        return self in (Work.START, Work.TRAIN, Work.EVALUATE, Work.PREDICT)

    def of(self, batch: RunningBatch | None) -> str:
        """``training batch 3 of task train 2``, for people."""
        if batch is None:
            return self.value
        if self in (Work.CALLBACKS, Work.METRICS, Work.EXPORT):
            return f"{self.value} (task {batch.task})"
        return f"{self.value} batch {batch.batch} of task {batch.task}"


@dataclass(slots=True, kw_only=True, eq=False)
class Activity:
    """One thing that a thread is doing in the code of the model file, or in reading or computing for it.

    Attributes:
        batch: the batch; batch 0 of a task without batches; None: the process has none yet.
        is_first: whether the process has not finished any of this work yet.
        waits: whether it waits for something that is not the user's code: a ps, other workers, object storage.
        steps: counts its progress: waits that have ended, parts that are done.
        limit_s: seconds that it may take at most, if that is less than the deadline of a batch.
    """

    batch: RunningBatch | None
    work: Work
    thread: int
    is_first: bool = False
    waits: bool = False
    steps: int = 0
    limit_s: float = math.inf

    def __str__(self) -> str:
        return self.work.of(self.batch)


@dataclass(slots=True)
class _Age:
    seconds: float
    steps: int
    is_known: bool = False
    """Whether people were told that it is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What a look at the activities shows.

    Attributes:
        overdue: those that have exceeded the deadline: the process has to be replaced.
        slow: (activity, seconds) of those that take long, each once.
        continued: those that were slow and have ended, or made progress.
    """

    overdue: tuple[Activity, ...] = ()
    slow: tuple[tuple[Activity, float], ...] = ()
    continued: tuple[Activity, ...] = ()


class BatchClock:
    """Measures how long each activity runs without progress. It stands still while the activity waits.

    Args:
        deadline_s: seconds that one batch may take; 0: any time.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s or math.inf
        self._slow_s = min(SLOW_S_MAX, self._deadline_s / 2)
        self.tick_s = min(_TICK_S_MAX, self._deadline_s / 10)
        self._ages: dict[Activity, _Age] = {}
        self._ticked_s = -math.inf

    def limit_s(self, activity: Activity) -> float:
        """Seconds that an activity may take."""
        return min((FIRST_BATCH_FACTOR if activity.is_first else 1.0) * self._deadline_s, activity.limit_s)

    def tick(self, now_s: float, activities: Iterable[Activity]) -> Tick:
        """Look at the activities of now; call it every ``tick_s`` seconds. ``now_s``: monotonic time in seconds."""
        # A process that was suspended, or got no CPU, has not computed meanwhile: one tick counts, however late.
        passed_s = min(now_s - self._ticked_s, 2 * self.tick_s)
        self._ticked_s = now_s
        before, self._ages = self._ages, {}
        overdue, slow = [], []
        for activity in activities:
            if activity.waits:
                continue
            age = before.pop(activity, None)
            if age is None or age.steps != activity.steps:
                if age is not None:
                    before[activity] = age  # It made progress.
                self._ages[activity] = _Age(0.0, activity.steps)
                continue
            self._ages[activity] = age
            age.seconds += passed_s
            factor = FIRST_BATCH_FACTOR if activity.is_first else 1.0
            if age.seconds >= self.limit_s(activity):
                overdue.append(activity)
            elif activity.batch is None:
                continue
            elif age.seconds >= factor * self._slow_s and not age.is_known:
                age.is_known = True
                slow.append((activity, age.seconds))
        continued = tuple(activity for activity, age in before.items() if age.is_known)
        return Tick(overdue=tuple(overdue), slow=tuple(slow), continued=continued)
