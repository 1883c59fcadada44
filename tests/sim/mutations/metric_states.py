"""Mutations of stored metric states: when they are summed, counted and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.schedule import evaluation_sums_schedule, metrics_schedule

from elasticdl.master.core.evaluation import decide, merging
from elasticdl.master.core.evaluation.task_results import StoredTree
from elasticdl.master.core.training import apply as tasks
from elasticdl.master.core.training.statistics import TrainingStatistics
from elasticdl.master.core.training.stored_states import EpochStates
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import EPOCH_SUM, EVALUATION_SUM


@mutation(
    "metric states are removed after the sum that replaces them is on the log",
    protects=Protects.EXACTLY_ONCE,
    schedule=metrics_schedule,
)
def summed_states_stay_until_the_sum_is_on_the_log() -> Iterator[None]:
    original = merging.apply_merge_dispatch

    def apply_merge_dispatch(state: Any, command: Any) -> None:
        original(state, command)
        if command.label == EPOCH_SUM:
            state.training.statistics.unneeded.add(state.training.epochs[command.evaluation].stored.summing)

    with replaced(tasks, "apply_merge_dispatch", apply_merge_dispatch):
        yield


@mutation("a sum replaces the metric states in it", protects=Protects.EXACTLY_ONCE, schedule=metrics_schedule)
def sums_replace_what_they_contain() -> Iterator[None]:
    def end_sum(self: EpochStates, numbers: Iterable[int]) -> RangeSet:
        self.abort_sum()
        self.add(numbers, is_partial=False)
        return RangeSet()

    with replaced(EpochStates, "end_sum", end_sum):
        yield


@mutation(
    "metric states that contain those of a known task do not count",
    protects=Protects.EXACTLY_ONCE,
    schedule=metrics_schedule,
)
def states_of_known_tasks_do_not_count() -> Iterator[None]:
    with replaced(TrainingStatistics, "_has_new_states", lambda self, event, process, is_repeated: True):
        yield


@mutation(
    "a task's larger metric states replace smaller ones",
    protects=Protects.EXACTLY_ONCE,
    schedule=metrics_schedule,
)
def larger_states_replace_smaller_ones() -> Iterator[None]:
    with replaced(EpochStates, "discard_partial", lambda self, numbers: None):
        yield


@mutation(
    "an epoch's metrics wait for a sum that a worker computes",
    protects=Protects.EXACTLY_ONCE,
    schedule=metrics_schedule,
)
def metrics_wait_for_sums() -> Iterator[None]:
    def begin_sum(self: EpochStates) -> None:
        self.complete = RangeSet()

    with replaced(EpochStates, "begin_sum", begin_sum):
        yield


@mutation(
    "metric states of an evaluation are removed after the sum that replaces them is on the log",
    protects=Protects.EXACTLY_ONCE,
    schedule=evaluation_sums_schedule,
)
def evaluated_states_stay_until_their_sum_is_on_the_log() -> Iterator[None]:
    original = merging.apply_merge_dispatch

    def apply_merge_dispatch(state: Any, command: Any) -> None:
        original(state, command)
        if command.label == EVALUATION_SUM:
            for start, end in command.tasks:
                for number in range(start, end):
                    state.training.statistics.unneeded.add(state.evaluation.tasks.stored.to_sum(number))

    with replaced(tasks, "apply_merge_dispatch", apply_merge_dispatch):
        yield


@mutation(
    "a sum of an evaluation replaces the metric states in it",
    protects=Protects.EXACTLY_ONCE,
    schedule=evaluation_sums_schedule,
)
def evaluated_states_are_replaced_by_their_sum() -> Iterator[None]:
    original = StoredTree.end_sum

    def end_sum(self: StoredTree, merge: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
        former = self.to_sum(merge)
        original(self, merge, (*numbers, former[0]))
        return former[1:]

    with replaced(StoredTree, "end_sum", end_sum):
        yield


@mutation(
    "the metrics of an evaluation wait for the sums that workers compute",
    protects=Protects.EXACTLY_ONCE,
    schedule=evaluation_sums_schedule,
)
def evaluations_wait_for_sums() -> Iterator[None]:
    original = decide._merge

    def merge(state: Any, evaluation: Any) -> Any:
        stored = evaluation.tasks.stored
        summing, stored.summing = stored.summing, {}
        decisions = original(state, evaluation)
        stored.summing = summing
        return decisions

    with replaced(decide, "_merge", merge):
        yield
