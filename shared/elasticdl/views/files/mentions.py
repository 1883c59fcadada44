"""Which tasks the records of a block of an exported log may be about, so that a task is found without reading all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.names import Purpose


class Mentions:
    """Tasks by their purpose. ``is_open``: any task may be mentioned, as by the exit of a process."""

    def __init__(self) -> None:
        self.is_open = False
        self._tasks: defaultdict[Purpose, set[int]] = defaultdict(set)
        """Single tasks: nearly all events name one."""
        self._ranges: defaultdict[Purpose, RangeSet] = defaultdict(RangeSet)

    def take(self, event: events.Event) -> None:
        """Add the tasks of an event: all those whose history, or whose parts of time, it may belong to."""
        match event:
            case events.TaskTaken() | events.TaskFinished() | events.TaskReturned() | events.TaskFailed():
                task = event.task
                self._tasks[task.purpose].add(task.number)
            case events.Decided():
                for command in event.commands:
                    self._take_command(command)
            case events.TasksTaken() | events.TasksFinished():
                for each in events.one_by_one(event):
                    self.take(each)
            case events.PodExited() | events.LedgersRead():
                self.is_open = True
            case _:
                pass

    def _take_command(self, command: commands.Command) -> None:
        match command:
            case commands.Dispatch():
                for start, end in command.tasks:
                    self._ranges[command.purpose].add_range(start, end)
            case commands.ReturnDelivery():
                self.is_open = True
            case _:
                pass

    def has(self, task: TaskRef) -> bool:
        """Whether the block may say something about a task."""
        return (
            self.is_open
            or task.number in self._tasks.get(task.purpose, ())
            or task.number in self._ranges.get(task.purpose, ())
        )

    def close(self) -> None:
        """No further event comes: what was taken needs less memory then."""
        for purpose, numbers in self._tasks.items():
            ranges = self._ranges[purpose]
            for number in sorted(numbers):
                ranges.add(number)
        self._tasks.clear()

    def to_plain(self) -> Any:
        """As JSON values, once it is closed; None: any task."""
        if self.is_open:
            return None
        return {purpose.value: ranges.ranges() for purpose, ranges in self._ranges.items()}

    @classmethod
    def of_plain(cls, values: Any) -> Mentions:
        """Inverse of ``to_plain``."""
        found = cls()
        found.is_open = values is None
        for purpose, ranges in (values or {}).items():
            found._ranges[Purpose(purpose)] = RangeSet(_pairs(ranges))
        return found


def _pairs(ranges: Iterable[Iterable[int]]) -> Iterable[tuple[int, int]]:
    return ((int(start), int(end)) for start, end in ranges)
