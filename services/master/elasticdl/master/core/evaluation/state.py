"""Evaluations, and the merges that compute metrics from metric states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from elasticdl.master.core.evaluation.task_results import TaskResults
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import Incarnation, PodName


class EvaluationPhase(Enum):
    """Phase of an evaluation."""

    PINNING = "pinning"
    RUNNING = "running"
    MERGING = "merging"
    SAVING = "saving"
    """It is the best one so far, so a worker saves the pinned model."""
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One evaluation of one pinned state of the model.

    Attributes:
        number: 1, 2, 3... in the job.
        epoch: the last completed epoch, from 0; -1 before the first.
        is_epoch_end: whether the evaluated model contains all batches up to the end of that epoch, and no others.
        final: whether it evaluates the finished model.
        pins: step of each ps at its pin.
        incarnations: instance of each ps that holds the pin.
        dispatch: number of the first dispatch of its tasks; 0: none was dispatched. No results of earlier ones count.
        checksum: sum of the hashes of the evaluated records, modulo 2**64.
        ended_s: when its results came.
        save_dispatched: whether a worker was asked to save its model.
    """

    number: int
    reason: str
    epoch: int
    is_epoch_end: bool = False
    final: bool
    started_s: float
    phase: EvaluationPhase = EvaluationPhase.PINNING
    pins: dict[PodName, int] = field(default_factory=dict)
    incarnations: dict[PodName, Incarnation] = field(default_factory=dict)
    dispatch: int = 0
    tasks: TaskResults = field(default_factory=TaskResults)
    records: int = 0
    checksum: int = 0
    results: dict[str, float] = field(default_factory=dict)
    ended_s: float = 0.0
    save_dispatched: bool = False

    @property
    def step(self) -> int:
        """Step of the evaluated model: the largest of the pins."""
        return max(self.pins.values(), default=0)


@dataclass(slots=True, kw_only=True)
class Best:
    """The best evaluation so far.

    Attributes:
        value: its value of the compared metric; None if absent.
        number: its number; 0 if absent.
        stale_epochs: evaluations at the end of an epoch, in a row, that were not better.
        saved: number of the evaluation whose model is saved; 0: none.
        saved_value: that evaluation's value.
    """

    value: float | None = None
    number: int = 0
    stale_epochs: int = 0
    saved: int = 0
    saved_value: float | None = None


@dataclass(slots=True, kw_only=True)
class Merge:
    """A task in which a worker computes metrics from summed metric states, or runs callbacks.

    Attributes:
        done: the results are there, or are not needed any more.
        returned: a worker has returned the task of an epoch, because a ps lacks batches of it; another task follows.
    """

    label: str
    subject: int
    done: bool = False
    returned: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether its results are still to come."""
        return not (self.done or self.returned)


@dataclass(slots=True, kw_only=True)
class UnneededStates:
    """Stored metric states that nothing needs any more, until their removal is decided.

    The core knows the numbers of stored states, never their content.

    Attributes:
        groups: evaluations whose states are all unneeded (see ``elasticdl.shared.job.tasks``).
    """

    groups: list[str] = field(default_factory=list)
    numbers: RangeSet = field(default_factory=RangeSet)

    def __bool__(self) -> bool:
        return bool(self.groups or self.numbers)

    def add(self, numbers: Iterable[int]) -> None:
        """Single states are not needed."""
        for number in numbers:
            self.numbers.add(number)

    def add_group(self, group: str) -> None:
        """All states of a group are not needed."""
        if group not in self.groups:
            self.groups.append(group)

    def remove(self, groups: Iterable[str], numbers: Iterable[tuple[int, int]]) -> None:
        """Their removal is decided."""
        removed = set(groups)
        self.groups = [group for group in self.groups if group not in removed]
        self.numbers = self.numbers.difference(RangeSet(numbers))
