"""The results of an evaluation's tasks, of which there may be a million.

Both sums below follow from the order of the tasks. So the metrics of an evaluation have the same bits, whichever
workers compute its tasks, in whatever order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticdl.master.core.task_window import TaskWindow
from elasticdl.shared.job.tasks import MetricStates

Block = tuple[int, int]
"""Level and number of a block."""
SummedStates = dict[str, tuple[list[float], ...]]
"""Metric states (see ``MetricStates``) as numbers."""


@dataclass(slots=True, kw_only=True)
class StoredTree:
    """Numbers of stored metric states, which workers sum in blocks of neighbours.

    Level 0 has a position for each task. A block of ``fan`` neighbours of one level is a position of the next level,
    once a worker has stored its sum. The top level is the first one with at most ``fan`` positions: the task that
    computes the metrics adds them up.

    Attributes:
        size: positions of level 0.
        fan: positions of a block; the last block of a level may have fewer.
        levels: for each level, position -> numbers of the parts of the states there.
        due: blocks of which all positions are there, in the order in which that became true.
        summing: merge task -> the block whose sum it stores.
    """

    size: int = 0
    fan: int = 2
    levels: list[dict[int, tuple[int, ...]]] = field(default_factory=list)
    due: list[Block] = field(default_factory=list)
    summing: dict[int, Block] = field(default_factory=dict)

    def put(self, position: int, numbers: tuple[int, ...], level: int = 0) -> None:
        """The states of a position are stored under these numbers; without numbers it has none."""
        while len(self.levels) <= level:
            self.levels.append({})
        self.levels[level][position] = numbers
        block = (level, position // self.fan)
        places = self._places(block)
        if self._size_of(level) <= self.fan or not all(place in self.levels[level] for place in places):
            return
        if any(self.levels[level][place] for place in places):
            self.due.append(block)
        else:
            self._replace(block, ())

    def begin_sum(self, merge: int) -> None:
        """A worker is asked for the sum of the first block that is due."""
        self.summing[merge] = self.due.pop(0)

    def end_sum(self, merge: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """The sum of a block is stored; returns the numbers of the states that it replaces."""
        block = self.summing.pop(merge)
        replaced = tuple(self._numbers_of(block))
        self._replace(block, numbers)
        return replaced

    def to_sum(self, merge: int) -> tuple[int, ...]:
        """The numbers of the states that a merge task sums, in the order of the tasks."""
        return tuple(self._numbers_of(self.summing[merge])) if merge in self.summing else ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all states, in the order of the tasks, once no sum is due or in progress."""
        return tuple(number for level in self.levels for _, of_place in sorted(level.items()) for number in of_place)

    def __bool__(self) -> bool:
        return any(numbers for level in self.levels for numbers in level.values())

    def _replace(self, block: Block, numbers: tuple[int, ...]) -> None:
        level, number = block
        for place in self._places(block):
            del self.levels[level][place]
        self.put(number, numbers, level + 1)

    def _numbers_of(self, block: Block) -> Iterator[int]:
        return (number for place in self._places(block) for number in self.levels[block[0]][place])

    def _places(self, block: Block) -> range:
        level, number = block
        return range(number * self.fan, min((number + 1) * self.fan, self._size_of(level)))

    def _size_of(self, level: int) -> int:
        size = self.size
        for _ in range(level):
            size = -(-size // self.fan)
        return size


@dataclass(slots=True, kw_only=True)
class TaskResults:
    """What the tasks of an evaluation have reported; the first result of a task wins.

    Attributes:
        first: number of the first task.
        window: which tasks were dispatched, and which have a result, by their positions from 0.
        summed: tasks before the first one without a result.
        sums: sum of their small metric states.
        waiting: position -> small metric states of later tasks.
        stored: numbers of the large ones.
    """

    first: int = 0
    window: TaskWindow = field(default_factory=TaskWindow)
    summed: int = 0
    sums: SummedStates = field(default_factory=dict)
    waiting: dict[int, MetricStates] = field(default_factory=dict)
    stored: StoredTree = field(default_factory=StoredTree)

    def awaits(self, task: int) -> bool:
        """Whether a task was dispatched and has no result."""
        return task - self.first in self.window.outstanding

    def add(self, task: int, states: MetricStates, stored: tuple[int, ...]) -> None:
        """Add the first result of a task."""
        position = task - self.first
        self.window.on_result(position)
        self.waiting[position] = states
        while self.summed in self.waiting:
            add_states(self.sums, to_numbers(self.waiting.pop(self.summed)))
            self.summed += 1
        self.stored.put(position, stored)

    @property
    def states(self) -> MetricStates:
        """The sum of all small metric states, once every task has a result."""
        return to_bytes(self.sums)


def add_states(total: SummedStates, states: SummedStates) -> None:
    """Add metric states to a running sum, in place."""
    for name, variables in states.items():
        if name not in total:
            total[name] = tuple([0.0] * len(variable) for variable in variables)
        for mine, theirs in zip(total[name], variables, strict=True):
            for index, value in enumerate(theirs):
                mine[index] += value


def to_bytes(states: SummedStates) -> MetricStates:
    """Metric states in the form in which messages carry them."""
    return {name: tuple(array("d", variable).tobytes() for variable in variables) for name, variables in states.items()}


def to_numbers(states: MetricStates) -> SummedStates:
    """Metric states from the form in which messages carry them."""
    return {name: tuple(array("d", variable).tolist() for variable in variables) for name, variables in states.items()}
