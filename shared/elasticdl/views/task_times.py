"""How long each training task took, and on which worker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from elasticdl.shared.messages.events import Envelope, LogRecord, TaskFinished, TaskTaken, one_by_one
from elasticdl.shared.names import PodName, Purpose, TaskId

TIME_FIELDS: Mapping[type, Collection[str]] = MappingProxyType(
    {Envelope: ("service", "name", "event"), TaskTaken: (), TaskFinished: ("task", "times")}
)
"""What is read of the most frequent events, see ``codec.envelope_decoder``."""
TIME_COLUMNS = ("worker", "seconds", "finished", "event")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTime:
    """A finished training task.

    Attributes:
        worker: the worker that finished it last.
        seconds: of all parts of the work on it, by all workers that finished it. Parts overlap: a worker computes a
            batch while it reads the next one.
        finishes: how often it was finished.
        seq: number of the last record that says so.
    """

    worker: PodName
    seconds: float
    finishes: int
    seq: int

    @property
    def row(self) -> tuple[str, ...]:
        """The values of ``TIME_COLUMNS``."""
        return self.worker, f"{self.seconds:.3f}", str(self.finishes), f"#{self.seq}"


class TaskTimes:
    """The finished training tasks of a log, record by record, in ``found``."""

    def __init__(self) -> None:
        self.found: dict[TaskId, TaskTime] = {}

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        for event in one_by_one(record.envelope.event):
            if not isinstance(event, TaskFinished) or event.task.purpose is not Purpose.TRAIN:
                continue
            number = TaskId(event.task.number)
            before = self.found.get(number)
            seconds = event.times.total_s + (before.seconds if before else 0.0)
            finishes = before.finishes + 1 if before else 1
            self.found[number] = TaskTime(
                worker=record.envelope.name, seconds=seconds, finishes=finishes, seq=record.seq
            )


def task_times(records: Iterable[LogRecord]) -> Mapping[TaskId, TaskTime]:
    """The finished training tasks of a log, or of the beginning of one."""
    times = TaskTimes()
    for record in records:
        times.take(record)
    return times.found


def slowest(times: Mapping[TaskId, TaskTime]) -> list[TaskId]:
    """The tasks, those first that took longest."""
    return sorted(times, key=lambda number: (-times[number].seconds, number))
