"""How long a job would take from a point of its log on, with other workers or without failures. Pure.

A small model: each worker takes a task after the other, and needs for a batch what it has needed in the log. Workers
and ps are away when they were in the log. It does not know the master's policies; ``tests/sim`` runs these.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from elasticdl.master.core.state import State
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import PodName, TaskId
from elasticdl.views.what_if.measuring import Measurements, Presence, overlap

_FOREVER_S = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is different in the simulation.

    Attributes:
        workers: how many more workers there are; negative: fewer.
        failures: whether processes are lost as they were in the log.
    """

    workers: int = 0
    failures: bool = True

    @property
    def are_none(self) -> bool:
        """Whether the simulation is of what has happened."""
        return not self.workers and self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a simulation has found. Seconds since the point from which it continues.

    Attributes:
        training_s: until the last training task is finished.
        seconds: until the end of the job; if the log has no end, the same as ``training_s``.
        really_s: until the job's end by its log; None: it has not ended.
        batches: that are trained from there; ``repeated``: of these, those that a failure has lost.
        workers: at the end of training.
        batch_s: seconds that a worker needs for a batch, in the mean.
    """

    training_s: float
    seconds: float
    really_s: float | None
    batches: int
    repeated: int
    workers: int
    batch_s: float

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        names = ("training_s", "seconds", "really_s", "batches", "repeated", "workers", "batch_s")
        return {name: getattr(self, name) for name in names}


def simulate(records: Sequence[LogRecord], state: State, seq: int, changes: Changes) -> Simulated:
    """Continue a job from a point in the model.

    Args:
        records: the whole log: what it says after the point is measured, too.
        state: the job's state after record ``seq``.

    Raises:
        UserError: the job does not train, or has not trained enough to be measured.
    """
    if state.spec is None or state.training is None or not state.job.kind.trains:
        raise UserError("only a job that trains can be simulated", hint="Choose a later point with --until.")
    measured = Measurements.of(records)
    now_s = records[seq - 1].envelope.time_s
    later = Measurements.of(records, since_s=now_s)  # A job may be faster or slower from then on.
    pace = later.batch_s() if later.is_measured else measured.batch_s()
    if not pace:
        raise UserError("the event log has no finished training task, so nothing is known about the job's speed")
    before = Measurements.of(records[:seq])
    finished = sum(state.plan.batches_of(TaskId(number)) for number in state.training.complete)
    left = state.plan.batches - finished
    has_ended = measured.closing_s is not None
    computed = sum(batches for time_s, batches in measured.reports if time_s > now_s)
    repeated = max(0, computed - left) if has_ended and changes.failures else 0
    presences = _presences(measured, now_s, changes)
    usual_s = median(pace.values())
    away = [each for each in measured.all_away() if changes.failures and (each[1] is None or each[1] > now_s)]
    model = _Model(now_s=now_s, task_batches=state.plan.minibatches_per_task, away=away)
    for name, each in presences.items():
        extra_s = measured.extra_start_s()
        model.add(each, pace.get(name, usual_s), before.reported_s(name, now_s), extra_s)
    training_s = model.run(left + repeated) - now_s if left + repeated > 0 else 0.0
    if training_s == _FOREVER_S:
        raise UserError("no worker is left in this simulation", hint="Take away fewer workers.")
    closing_s = measured.closing_s or 0.0
    if not left:  # The point is after the training.
        closing_s = max(0.0, closing_s - (now_s - measured.training_ended_s))
    return Simulated(
        training_s=round(training_s, 3),
        seconds=round(training_s + closing_s, 3),
        really_s=round(records[-1].envelope.time_s - now_s, 3) if has_ended else None,
        batches=left + repeated,
        repeated=repeated,
        workers=len(model.workers),
        batch_s=round(usual_s, 6),
    )


def _presences(measured: Measurements, now_s: float, changes: Changes) -> dict[PodName, list[Presence]]:
    """When each worker takes tasks from now on."""
    found: dict[PodName, list[Presence]] = {}
    for name, presences in measured.presences().items():
        kept = [each for each in presences if each.ended_s is None or each.ended_s > now_s]
        if kept and not changes.failures:
            kept = _without_losses(kept)
        if kept:
            found[name] = kept
    for name in sorted(found)[max(0, len(found) + min(0, changes.workers)) :]:
        del found[name]
    for number in range(changes.workers):
        found[PodName(f"extra-{number}")] = [Presence(ready_s=now_s + measured.start_s())]
    return found


def _without_losses(presences: Iterable[Presence]) -> list[Presence]:
    """The same without the ends that were not ordered, and without the time until the next process was ready."""
    found: list[Presence] = []
    for each in presences:
        if found and found[-1].was_lost:
            found[-1] = Presence(ready_s=found[-1].ready_s, ended_s=each.ended_s, was_lost=each.was_lost)
        else:
            found.append(each)
    if found and found[-1].was_lost:
        found[-1] = Presence(ready_s=found[-1].ready_s)
    return found


@dataclass(slots=True, kw_only=True)
class _Worker:
    presences: list[Presence]
    batch_s: float
    extra_s: float
    """Seconds that its next result takes longer, because its process has just started."""
    head_start_s: float
    """Seconds that it has worked on a task that it has not reported."""


class _Model:
    """Workers that take a task after the other until none is left."""

    def __init__(self, *, now_s: float, task_batches: int, away: Sequence[tuple[float, float | None]]) -> None:
        self._now_s = now_s
        self._task_batches = task_batches
        self._away = away
        self.workers: list[_Worker] = []

    def add(self, presences: list[Presence], batch_s: float, reported_s: float, extra_s: float) -> None:
        """Add a worker; ``reported_s``: time of its last result."""
        is_old = presences[0].ready_s <= self._now_s
        head_start_s = self._now_s - reported_s if is_old else 0.0
        is_new = not is_old or reported_s <= presences[0].ready_s
        self.workers.append(
            _Worker(
                presences=presences,
                batch_s=batch_s,
                extra_s=extra_s if is_new else 0.0,
                head_start_s=min(head_start_s, 0.9 * (batch_s * self._task_batches + (extra_s if is_new else 0.0))),
            )
        )
        self._extra_s = extra_s

    def run(self, batches: int) -> float:
        """The time when that many batches are trained; infinite: there are too few workers."""
        free = [(max(self._now_s, worker.presences[0].ready_s), number) for number, worker in enumerate(self.workers)]
        heapq.heapify(free)
        ended_s = self._now_s
        while batches > 0:
            if not free:
                return _FOREVER_S
            began_s, number = heapq.heappop(free)
            worker = self.workers[number]
            task = min(batches, self._task_batches)
            spent_s = max(0.0, task * worker.batch_s + worker.extra_s - worker.head_start_s)
            finished_s = self._later(began_s, spent_s)
            gone_s = worker.presences[0].ended_s
            worker.head_start_s = worker.extra_s = 0.0
            if gone_s is not None and finished_s > gone_s:  # The task is lost with it, and taken by another worker.
                worker.presences = worker.presences[1:]
                worker.extra_s = self._extra_s
                if worker.presences:
                    heapq.heappush(free, (max(gone_s, worker.presences[0].ready_s), number))
                continue
            batches -= task
            ended_s = max(ended_s, finished_s)
            heapq.heappush(free, (finished_s, number))
        return ended_s

    def _later(self, began_s: float, spent_s: float) -> float:
        """When work ends that takes so long while no ps is away."""
        ended_s = began_s + spent_s
        for each in sorted(self._away):
            if each[1] is not None:
                ended_s += overlap(each, began_s, ended_s)
        return ended_s
