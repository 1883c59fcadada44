"""What a log says about the speed and the failures of its job, for ``simulating``. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import LogRecord, TaskFinished
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.views.points import ORDERED_ENDS

BATCHES_MIN = 16
"""Batches of a worker from which on its own speed is known."""


@dataclass(slots=True, kw_only=True)
class Presence:
    """A process of a worker that takes tasks, until ``ended_s``; None: it has not ended. Seconds since 1970."""

    ready_s: float
    ended_s: float | None = None
    was_lost: bool = False


@dataclass(slots=True)
class _Worker:
    """A worker's reports: its time between two of them, and their batches; the first one of a process is apart."""

    presences: list[Presence] = field(default_factory=list)
    seconds: float = 0.0
    batches: int = 0
    first: list[tuple[float, int]] = field(default_factory=list)
    reported_s: float = 0.0
    has_reported: bool = False


class Measurements:
    """Takes the records of a log.

    Args:
        since_s: the time from which on the speed of workers is measured.

    Attributes:
        away: when ps were away, as (from, until); until is None for one that has not come back.
        training_ended_s: time of the last result of a training task.
        closing_s: seconds from there to the end of the job; None: the job has not ended.
        reports: time and batches of every result of a training task.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self._since_s = since_s
        self.away: list[tuple[float, float | None]] = []
        self.training_ended_s = 0.0
        self.closing_s: float | None = None
        self.reports: list[tuple[float, int]] = []
        self._workers: dict[PodName, _Worker] = {}
        self._away: dict[PodName, float] = {}
        self._ordered_s: dict[PodName, float] = {}
        self._starts: list[float] = []

    @classmethod
    def of(cls, records: Iterable[LogRecord], since_s: float = 0.0) -> Measurements:
        """Those of a log."""
        found = cls(since_s)
        for record in records:
            found.take(record)
        return found

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        envelope, now_s = record.envelope, record.envelope.time_s
        match envelope.event:
            case events.Decided() as decided:
                self._decided(decided, now_s)
            case events.WorkerStarted():
                worker = self._workers.setdefault(envelope.name, _Worker())
                worker.presences.append(Presence(ready_s=now_s))
                worker.reported_s, worker.has_reported = now_s, False
            case events.PsStarted() if envelope.name in self._away:
                self.away.append((self._away.pop(envelope.name), now_s))
            case events.PodExited() as exit_:
                self._exited(exit_, now_s)
            case events.TaskFinished() | events.TasksFinished():
                tasks = [each for each in events.one_by_one(envelope.event) if isinstance(each, TaskFinished)]
                batches = sum(each.batches for each in tasks if each.task.purpose is Purpose.TRAIN)
                if batches:
                    self._reported(envelope.name, batches, now_s)
            case RunMeasured(ended_s=ended_s) if ended_s:
                self.closing_s = max(0.0, now_s - self.training_ended_s)
            case _:
                pass

    def _decided(self, decided: events.Decided, now_s: float) -> None:
        for command in decided.commands:
            if isinstance(command, commands.PromoteWorker):
                self._ordered_s.setdefault(command.worker, now_s)
            elif isinstance(command, commands.StartPod) and command.service is Service.WORKER and not command.is_spare:
                self._ordered_s[command.pod] = now_s
            elif isinstance(command, commands.EnterState) and command.state is JobState.TRAINING:
                self.closing_s = None

    def _exited(self, exit_: events.PodExited, now_s: float) -> None:
        was_lost = exit_.cause not in ORDERED_ENDS
        if exit_.service is Service.PS and was_lost:
            self._away[exit_.pod] = now_s
        worker = self._workers.get(exit_.pod)
        if worker and worker.presences and worker.presences[-1].ended_s is None:
            worker.presences[-1].ended_s, worker.presences[-1].was_lost = now_s, was_lost

    def _reported(self, name: PodName, batches: int, now_s: float) -> None:
        worker = self._workers.setdefault(name, _Worker())
        self.training_ended_s = now_s
        self.reports.append((now_s, batches))
        if not worker.has_reported and worker.presences:
            worker.first.append((now_s - worker.reported_s, batches))
            if name in self._ordered_s:
                self._starts.append(now_s - self._ordered_s.pop(name))
        elif worker.presences and now_s > self._since_s:
            away_s = sum(overlap(each, worker.reported_s, now_s) for each in self.away)
            worker.seconds += max(0.0, now_s - worker.reported_s - away_s)
            worker.batches += batches
        worker.reported_s, worker.has_reported = now_s, True

    def presences(self) -> dict[PodName, list[Presence]]:
        """When each worker took tasks. One that ended after the last result would have taken more."""
        last_s = self.training_ended_s
        return {
            name: [
                Presence(ready_s=each.ready_s)
                if each.ended_s is None or each.ended_s >= last_s
                else Presence(ready_s=each.ready_s, ended_s=each.ended_s, was_lost=each.was_lost)
                for each in worker.presences
            ]
            for name, worker in self._workers.items()
        }

    def all_away(self) -> list[tuple[float, float | None]]:
        """When ps were away, also those that have not come back."""
        return [*self.away, *((since_s, None) for since_s in self._away.values())]

    @property
    def is_measured(self) -> bool:
        """Whether every worker has reported enough batches for its speed."""
        return all(worker.batches >= BATCHES_MIN for worker in self._workers.values())

    def batch_s(self) -> dict[PodName, float]:
        """Seconds for a batch, by worker; those of few results have the mean of all. Empty: there are no results."""
        seconds = sum(worker.seconds for worker in self._workers.values())
        batches = sum(worker.batches for worker in self._workers.values())
        if not batches:
            firsts = [each for worker in self._workers.values() for each in worker.first]
            seconds, batches = sum(each for each, _ in firsts), sum(each for _, each in firsts)
        if not batches or not seconds:
            return {}
        mean_s = seconds / batches
        return {
            name: worker.seconds / worker.batches if worker.batches and worker.seconds else mean_s
            for name, worker in self._workers.items()
        }

    def extra_start_s(self) -> float:
        """Seconds that the first result of a process takes longer than a later one of as many batches, in the mean."""
        pace = self.batch_s()
        found = [
            max(0.0, spent_s - batches * pace[name])
            for name, worker in self._workers.items()
            for spent_s, batches in worker.first
            if name in pace
        ]
        return sum(found) / len(found) if found else 0.0

    def start_s(self) -> float:
        """Seconds from the order to start a worker to its first result, the median."""
        return median(self._starts) if self._starts else 0.0

    def reported_s(self, name: PodName, until_s: float) -> float:
        """Time of the last result of a worker, or of its start; ``until_s`` if it has none before."""
        worker = self._workers.get(name)
        return min(worker.reported_s, until_s) if worker else until_s


def overlap(span: tuple[float, float | None], since_s: float, until_s: float) -> float:
    """Seconds of a span that are between two times."""
    began_s, ended_s = span
    return max(0.0, min(until_s, until_s if ended_s is None else ended_s) - max(since_s, began_s))
