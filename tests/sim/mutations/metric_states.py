"""Mutations of metric states: sums of training that the ps keep, and those of evaluations beside the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.schedule import evaluation_sums_schedule, metrics_schedule

from elasticdl.master.core.evaluation import decide, merging
from elasticdl.master.core.evaluation.task_results import StoredTree
from elasticdl.master.core.training import apply as tasks
from elasticdl.ps.shard import core, model_shard, regrouping
from elasticdl.ps.shard.metric_sums import NO_METRICS, EpochMetricSums
from elasticdl.ps.shard.model_shard import Division, ModelShard
from elasticdl.ps.snapshots import reader
from elasticdl.shared.job.ledger import Verdict
from elasticdl.shared.job.tasks import EVALUATION_SUM


@mutation("snapshots contain the sums of metric states", protects=Protects.EXACTLY_ONCE, schedule=metrics_schedule)
def metric_sums_in_snapshots() -> Iterator[None]:
    with replaced(reader, "_metrics", lambda store, uri, chunks: NO_METRICS):
        yield


@mutation("a repeated push adds no metric states", protects=Protects.EXACTLY_ONCE, schedule=metrics_schedule)
def repeated_pushes_add_no_metrics() -> Iterator[None]:
    original = ModelShard.divide

    def divide(self: ModelShard, push: Any) -> list[Division]:
        divisions = original(self, push)
        for each in divisions:
            if each.verdict is Verdict.DUPLICATE and each.group.metrics is not None:
                each.group.metrics.add(push.task, push.records, push.metric_states)
        return divisions

    with replaced(ModelShard, "divide", divide):
        yield


@mutation("a group that gives partitions away in a move keeps its metric sums", protects=Protects.EXACTLY_ONCE)
def metric_sums_survive_moves() -> Iterator[None]:
    def reduced(cut: Any, partitions: Any, variables: Any) -> Any:
        kept = regrouping.reduced(cut, partitions, variables)
        return kept if kept is cut else replace(kept, metrics=NO_METRICS)

    with replaced(model_shard, "reduced", reduced):
        yield


@mutation("groups that merge keep their metric sums", protects=Protects.EXACTLY_ONCE)
def merged_groups_keep_their_metric_sums() -> Iterator[None]:
    def joined(cuts: Sequence[Any], variables: Any) -> Any:
        return replace(regrouping.joined(cuts, variables), metrics=cuts[-1].metrics)

    with replaced(model_shard, "joined", joined):
        yield


@mutation(
    "the metrics of an epoch are read when all of its batches are absorbed",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-ps-dies-before-the-metrics-of-an-epoch-are-read",
)
def metrics_are_read_when_complete() -> Iterator[None]:
    with replaced(core, "is_epoch_complete", lambda *_: True):
        yield


@mutation(
    "a metric sum stays until the metrics of its epoch are on the log",
    protects=Protects.EXACTLY_ONCE,
    schedule=metrics_schedule,
)
def metric_sums_stay_until_their_results_are_on_the_log() -> Iterator[None]:
    original = EpochMetricSums.of

    def of(self: EpochMetricSums, epoch: int) -> Any:
        found = original(self, epoch)
        self.drop_before(epoch + 1)
        return found

    with replaced(EpochMetricSums, "of", of):
        yield


@mutation("the metrics of epochs are computed in order", protects=Protects.EXACTLY_ONCE, schedule=metrics_schedule)
def metrics_of_epochs_in_order() -> Iterator[None]:
    original = EpochMetricSums.drop_before

    def drop_before(self: EpochMetricSums, epoch: int) -> None:
        original(self, max(self._sums, default=epoch))

    with replaced(EpochMetricSums, "drop_before", drop_before):
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
