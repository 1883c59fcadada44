"""Mutations of synchronous training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.ps.engine.accumulator import Accumulator
from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId
from elasticdl.worker.core.round_wait import RoundWait
from elasticdl.worker.core.training import Training


@mutation("weights for a batch contain every earlier round", protects=Protects.EXACTLY_ONCE)
def pulls_wait_for_rounds() -> Iterator[None]:
    with replaced(ModelShard, "is_open_for", lambda self, request: True):
        yield


@mutation("a push of a later round changes nothing", protects=Protects.EXACTLY_ONCE)
def rounds_are_pushed_in_order() -> Iterator[None]:
    def judge(self: Any, push: Any) -> Any:
        return self.ledger.judge(TaskId(push.task), push.batch, push.batches)

    with replaced(Group, "judge", judge):
        yield


@mutation("an update waits for every batch of its round", protects=Protects.EXACTLY_ONCE)
def updates_wait_for_their_round() -> Iterator[None]:
    with replaced(Rounds, "is_complete", lambda self, ledger, task, batch: True):
        yield


@mutation("a worker that waits for a round finds out how far its task is", protects=Protects.LIVENESS)
def waiting_workers_go_back() -> Iterator[None]:
    def find_position(self: Any, ref: Any) -> Any:
        return
        yield

    with replaced(Training, "_find_position", find_position):
        yield


@mutation("a worker that waits for a round looks for a task that no other worker trains", protects=Protects.LIVENESS)
def waiting_workers_take_siblings() -> Iterator[None]:
    with replaced(RoundWait, "wants_task", lambda self, now_s: False):
        yield


@mutation("an update is the mean of its batches, weighted by their records", protects=Protects.EXACTLY_ONCE)
def rounds_are_weighted_by_records() -> Iterator[None]:
    add = Accumulator.add

    def add_evenly(self: Any, gradients: Any, weight: int = 1, layer_state: Any = None) -> None:
        add(self, gradients, 1, layer_state)

    with replaced(Accumulator, "add", add_evenly):
        yield
