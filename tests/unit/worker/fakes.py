"""The parts of a worker in memory: deliveries, a feed and a model that add numbers, and a ps with real ledgers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elasticdl.shared.job.ledger import Ledger, Verdict
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.worker.core import commands
from elasticdl.worker.core.events import QueueEmpty, TasksDelivered
from elasticdl.worker.core.tasks.leased import LeasedTask
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.ports import Ids, Outputs
from elasticdl.worker.ps_client import EpochMetrics, PinLostError, Pulled, PushOutcome, PushRequest, TaskProgress


@dataclass
class FakeDelivery:
    message: TaskMessage
    attempt: int
    answer: str = ""


@dataclass
class FakeTasks:
    """Hands out messages; asks the worker to stop once everything is answered.

    A stop drops commands that wait, those that release batches included, so it waits for them, for up to ``idle_s``.
    """

    stop: Callable[[str], None]
    is_idle: Callable[[], bool]
    idle_s: float = 30.0
    waiting: deque[tuple[TaskMessage, int]] = field(default_factory=deque)
    again: deque[tuple[TaskMessage, int]] = field(default_factory=deque)
    deliveries: list[FakeDelivery] = field(default_factory=list)
    deliveries_max: int = 30
    answered_s: float = 0.0

    def publish(self, *messages: TaskMessage) -> None:
        self.waiting.extend((message, 1) for message in messages)

    def take(self, _: commands.TakeTasks) -> TasksDelivered | QueueEmpty:
        source = self.again or self.waiting
        if source and len(self.deliveries) < self.deliveries_max:
            message, attempt = source.popleft()
            self.deliveries.append(FakeDelivery(message, attempt))
            lease = LeasedTask(number=len(self.deliveries), message=message, attempt=attempt)
            return TasksDelivered(leases=(lease,))
        if all(delivery.answer for delivery in self.deliveries):
            self.answered_s = self.answered_s or time.monotonic()
            if self.is_idle() or time.monotonic() > self.answered_s + self.idle_s:
                self.stop("drained")
        return QueueEmpty()

    def ack(self, command: commands.AckTask) -> None:
        self.deliveries[command.lease.number - 1].answer = "ack"

    def nak(self, command: commands.NakTask) -> None:
        delivery = self.deliveries[command.lease.number - 1]
        delivery.answer = "nak"
        self.again.append((delivery.message, delivery.attempt + 1))


@dataclass(frozen=True)
class FakeBatch:
    values: np.ndarray[Any, Any]

    @property
    def count(self) -> int:
        return len(self.values)


class FakeFeeder:
    """Records are decimal numbers; ``skip`` is filtered out, ``bad`` raises."""

    is_compiled = True

    def feed(self, records: list[bytes], seed: int = 0) -> FakeBatch | None:
        if b"bad" in records:
            raise UserCodeError("feed() raised ValueError", traceback="File model.py, line 7")
        values = [int(record) for record in records if record != b"skip"]
        return FakeBatch(np.array(values, np.int64)) if values else None


@dataclass(frozen=True)
class FakeResult:
    loss: float
    row_gradients: Mapping[str, Any]
    metric_states: Any
    finite: bool = True
    overflow: bool = False
    problem: str = ""
    dense_gradient: Any = field(default_factory=lambda: np.ones(3, np.float32))
    statistics_update: Any = field(default_factory=lambda: np.zeros(0, np.float32))
    row_magnitudes: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class FakeModel:
    """The loss of a batch is the mean of its numbers; ``nan_from`` and ``overflow`` are numbers that do harm."""

    nan_from: int = 1 << 60
    raise_at: int = -1
    wrong_at: int = -1
    """Takes any batch but those with this number."""
    overflow_at: int = -1
    state: float = 0.0
    seeds: list[int] = field(default_factory=list)
    trained: list[list[int]] = field(default_factory=list)
    evaluated: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def ids(self, batch: FakeBatch, *, training: bool = True) -> Mapping[str, Ids]:
        return {"table": batch.values % 4}

    def train(self, batch: FakeBatch, dense: Any, rows: Any, *, step_seed: int) -> FakeResult:
        unique, inverse = rows["table"]
        np.testing.assert_array_equal(unique[inverse][:, 0], batch.values % 4)
        self._check_values(batch)
        self.seeds.append(step_seed)
        self.trained.append(batch.values.tolist())
        if self.raise_at in batch.values:
            raise UserCodeError("loss() raised ValueError", traceback="File model.py, line 9")
        finite = bool((batch.values < self.nan_from).all())
        overflow = self.overflow_at in batch.values
        loss = float(batch.values.mean()) if finite else float("nan")
        states = np.array([float(batch.values.sum()), float(batch.count)])
        problem = "" if finite else "the loss is nan"
        made = FakeResult(loss, {"table": unique}, states, finite and not overflow, overflow, problem)
        return replace(made, statistics_update=np.full(2, self.state, np.float32))

    def _check_values(self, batch: FakeBatch) -> None:
        if self.wrong_at in batch.values:
            raise UserCodeError(f"{self.wrong_at} is not in [0, 5)", is_about_values=True)

    def rate(self, iteration: int) -> float:
        return 1.0 / (1 + iteration)

    def evaluate(self, batch: FakeBatch, dense: Any, rows: Any, *, step_seed: int) -> float:
        self._check_values(batch)
        self.evaluated = [self.evaluated[0] + float(batch.values.sum()), self.evaluated[1] + batch.count]
        return float(batch.values.mean())

    @property
    def output_names(self) -> Sequence[str]:
        return ()

    def outputs(self, batch: FakeBatch, dense: Any, rows: Any) -> Outputs:
        unique, inverse = rows["table"]
        np.testing.assert_array_equal(unique[inverse][:, 0], batch.values % 4)
        np.testing.assert_array_equal(dense, np.zeros(3, np.float32))
        self._check_values(batch)
        if self.raise_at in batch.values:
            raise UserCodeError("process() raised ValueError", traceback="File model.py, line 9")
        return Outputs(values=batch.values * 10)

    def metric_states(self) -> Mapping[str, list[Any]]:
        return {"loss": [np.array(value) for value in self.evaluated]}

    def reset_metrics(self) -> None:
        self.evaluated = [0.0, 0.0]

    def split_states(self, states: Any) -> Mapping[str, list[Any]]:
        return {"loss": [states[:1], states[1:]]}

    def merge(self, states: Mapping[str, list[Any]]) -> dict[str, float]:
        total, records = states["loss"]
        return {"loss": float(total[0]) / float(records[0])}


@dataclass
class FakePs:
    """Two groups with ledgers; notes what goes over the wire; can lose its memory before a push."""

    groups: list[Ledger] = field(default_factory=lambda: [Ledger(), Ledger()])
    wire: list[str] = field(default_factory=list)
    pushes: list[PushRequest] = field(default_factory=list)
    restore_before_push: dict[int, int] = field(default_factory=dict)
    not_finite_at: int = -1
    pins: set[int] = field(default_factory=set)
    metric_states: Any = field(default_factory=lambda: np.zeros(2))
    """Summed over the batches in the first ledger."""
    incomplete_reads: int = 0
    """How often the answer to a worker is that batches are missing."""
    released: list[int] = field(default_factory=list)

    def credits(self) -> Mapping[PodName, Incarnation]:
        return {PodName("ps-0"): Incarnation("aaa"), PodName("ps-1"): Incarnation("bbb")}

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        return TaskProgress(
            next_batch=min(group.next_batch(task, batches) for group in self.groups), credits=self.credits()
        )

    def pull(
        self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True, batch: tuple[int, int] | None = None
    ) -> Pulled:
        if pin and pin not in self.pins:
            raise PinLostError(f"pin {pin} is gone")
        self.wire.append(f"pin {pin}" if pin else "pull" if dense else "pull rows")
        buffers = {table: np.stack([flat, flat], axis=1).astype(np.float32) for table, flat in ids.items()}
        number = len(self.released)
        self.released.append(0)

        def release() -> None:
            self.released[number] += 1
            for buffer in buffers.values():
                buffer.fill(np.nan)

        step = self.groups[0].step
        return Pulled(
            dense=np.zeros(3, np.float32), rows=buffers, iterations={PodName("ps-0"): step}, step=step, release=release
        )

    def push(self, push: PushRequest) -> PushOutcome:
        number = len(self.pushes)
        if number in self.restore_before_push:
            self.groups[self.restore_before_push[number]] = Ledger()
            if self.restore_before_push[number] == 0:
                self.metric_states = np.zeros(2)
        self.pushes.append(push)
        self.wire.append(f"push {push.task}.{push.batch}" + ("" if push.dense_gradient is not None else " empty"))
        if number == self.not_finite_at:
            return PushOutcome(next_batch=push.batch, credits={}, step=0, not_finite="dense gradient")
        if self.groups[0].judge(push.task, push.batch, push.batches) is Verdict.APPLIED and push.metric_states.size:
            self.metric_states = self.metric_states + push.metric_states
        for group in self.groups:
            group.absorb(push.task, push.batch, push.batches, push.records, push.checksum)
        progress = self.next_batch(push.task, push.batches)
        return PushOutcome(
            next_batch=progress.next_batch, credits=progress.credits, step=max(group.step for group in self.groups)
        )

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> EpochMetrics:
        self.wire.append(f"metrics {epoch}")
        self.incomplete_reads -= 1
        ledger, states = self.groups[0], self.metric_states.tobytes()
        complete = self.incomplete_reads < 0
        return EpochMetrics(complete=complete, batches=ledger.step, records=ledger.records, states=states)

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> tuple[PushOutcome, Pulled | None, float]:
        outcome = self.push(request)
        pulled = self.pull(ids, batch=batch) if outcome.is_certainly_pulled(request, sent_once=True) else None
        return outcome, pulled, 0.0
