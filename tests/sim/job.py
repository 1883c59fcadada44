"""A small job whose model counts: after training, every weight says how often one batch was learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from tests.sim.dense_updates import OPTIMIZERS, SGD, Doubles

from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import BestModel, DataSpec, JobSpec, Limits, ModelSpec, PredictionSpec
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.model.signature import (
    DenseVariable,
    ModelSignature,
    RowInitializer,
    RowTable,
    VariableKind,
)
from elasticdl.shared.names import JobId, PodName, TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, Floats, Ids
from elasticdl.worker.ps_client.requests import PushRequest

LEASE_S = 10.0
LIMITS = Limits(
    lease_s=LEASE_S,
    batch_deadline_s=20.0,
    window_s=0.2,
    stored_states_max=3,
    evaluation_window_min=4,
    evaluations_max=1,
)
ROWS = 24
WIDTH = 2
RECORDS_PER_BATCH = 3
OUTPUT = "memory://output"
MIN_COUNT = 2
"""Updates until an id has a row in the second table, whose rows say how many updates followed."""
ROWS_TABLE = RowTable(name="rows", width=WIDTH, initializer=RowInitializer(distribution="zeros"))
TRACKED_TABLE = replace(ROWS_TABLE, name="tracked", width=1)
UNTRAINED = RowInitializer(distribution="constant", low=4.0)
"""Of rows that catch up: weight decay shrinks them before they have a gradient."""


REPEATED, REPETITION = slice(None, None, 2), 0.5
"""Which of its ids a batch has twice, with equal gradients: their squares are half of that of the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large the job is.

    Attributes:
        ps: parameter servers.
        workers: workers.
        spares: spare workers.
        tasks: tasks per epoch.
        batches: batches per full task; the last task of an epoch has one less, if there can be less.
        epochs: passes over the data.
        global_shuffle: whether the records of a task are from the whole data set.
        grads_to_wait: batches per optimizer update.
        synchronous: whether the plan decides which batches these are.
        max_staleness: updates that a gradient may lack; None: any number.
        staleness_by_workers: without ``max_staleness``, one less than the workers that train.
        snapshot_s: seconds between snapshots.
        compute_s: seconds that a batch takes.
        evaluates: the job evaluates a model and trains nothing; tasks and batches are those of its validation data.
        predicts: likewise, the job predicts that data.
        evaluate: whether there is validation data.
        evaluate_epochs: with validation data, the end of each epoch is evaluated.
        patience: epochs without a better result after which training ends; 0: never. With it, the best model is saved.
        evaluate_s: seconds between evaluations, with validation data; 0: none by the clock.
        export: whether there is an output.
        callback_epochs: epochs after which a callback stops training; 0: there are no callbacks.
        empty_every: every so many-th batch is filtered empty; 0: none.
        shared_address: all lives of a ps are found under one address, as behind a Kubernetes service.
        chain_max: snapshots in a chain.
        part_bytes_max: the largest part of a core snapshot; by default none has several.
        counted: there is a second table, whose rows are admitted by count.
        expire_after: there is a second table, whose rows expire after so many updates without a gradient; 0: never.
            Only with an optimizer other than ``sgd``: the oracle has to know the order of the updates.
        optimizer: a key of ``dense_updates.OPTIMIZERS``. With all but ``sgd`` rows catch up, and dense weights say in
            which update each batch was learned.
        hangs_at: the number of a batch on which every worker hangs in the user's code; -1: on none.
        metrics: evaluations have states that are stored beside the log.
    """

    ps: int = 1
    workers: int = 2
    tasks: int = 6
    batches: int = 3
    epochs: int = 1
    global_shuffle: bool = False
    grads_to_wait: int = 1
    synchronous: bool = False
    max_staleness: int | None = None
    staleness_by_workers: bool = False
    snapshot_s: float = 1.0
    compute_s: float = 0.05
    evaluates: bool = False
    predicts: bool = False
    evaluate: bool = False
    evaluate_epochs: bool = False
    patience: int = 0
    evaluate_s: float = 0.0
    export: bool = False
    callback_epochs: int = 0
    empty_every: int = 0
    shared_address: bool = False
    chain_max: int = 3
    part_bytes_max: int = BusSettings().part_bytes_max
    counted: bool = False
    expire_after: int = 0
    optimizer: str = SGD
    metrics: bool = False
    hangs_at: int = -1
    spares: int = 0

    @property
    def catches_up(self) -> bool:
        """Whether rows change in updates in which they have no gradient."""
        return self.optimizer != SGD

    @property
    def kind(self) -> JobKind:
        """What the job does."""
        if self.predicts:
            return JobKind.PREDICT
        return JobKind.EVALUATE if self.evaluates else JobKind.TRAIN


class SimJob:
    """The job of a shape: plan, spec, model, and the gradients of every batch.

    Args:
        shape: how large it is.
        added_epochs: that a resume adds after it has finished.
    """

    def __init__(self, shape: Shape, added_epochs: int = 0) -> None:
        self.shape = shape
        self.validation = _plan(shape, epochs=1)
        trains = shape.kind.trains
        self.plan = _plan(shape, epochs=shape.epochs) if trains else replace(self.validation, sources=())
        self.epochs = shape.epochs + added_epochs
        whole = replace(self.plan, epochs=self.epochs)
        self.batches = _batches(whole)
        self.numbers = {place: number for number, place in enumerate(self.batches)}
        self.checksums = [_checksum(whole, *each) for each in self.batches]
        evaluated = sum(self.evaluation_checksum(*each) for each in _batches(self.validation)) % (1 << 64)
        trained = sum(self.checksums[: self.plan.batches]) % (1 << 64)
        has_validation = shape.evaluate or not trains
        self.spec = JobSpec(
            kind=shape.kind,
            job=JobId("sim-1"),
            created_s=0.0,
            plan=self.plan,
            checksum=trained if trains else evaluated,
            data=DataSpec(format="tfrecord"),
            validation=self.validation if has_validation else None,
            validation_data=DataSpec(format="tfrecord") if has_validation else None,
            model=ModelSpec(path="/model.py", symbol="model"),
            output=OUTPUT if shape.export or shape.predicts else "",
            prediction=PredictionSpec(format="csv") if shape.predicts else None,
            storage="memory://storage",
            workers=shape.workers,
            spare_workers=shape.spares,
            ps=shape.ps,
            snapshot_interval_s=shape.snapshot_s,
            evaluation_interval_s=shape.evaluate_s,
            best=BestModel(metric="loss", save=True, patience=shape.patience) if shape.patience else None,
            epoch_checksum=sum(self.checksums[: self.plan.batches_per_epoch]) % (1 << 64),
            evaluate_epochs=shape.evaluate and shape.evaluate_epochs,
            grads_to_wait=shape.grads_to_wait,
            synchronous=shape.synchronous,
            max_staleness=shape.max_staleness,
            staleness_by_workers=shape.staleness_by_workers,
            limits=LIMITS,
            callbacks=("Stopping",) if shape.callback_epochs else (),
        )

    @cached_property
    def signature(self) -> ModelSignature:
        """One weight per partition and batch, so that each partition counts for itself; one statistic per partition."""
        return ModelSignature(
            dense=(
                DenseVariable(name="counts", shape=(PARTITIONS, self._columns), kind=VariableKind.TRAINABLE),
                DenseVariable(name="absorbed", shape=(PARTITIONS,), kind=VariableKind.STATISTIC),
            ),
            tables=self._tables,
            optimizer=OPTIMIZERS[self.shape.optimizer],
            seed=1,
        )

    @property
    def _tables(self) -> tuple[RowTable, ...]:
        shape = self.shape
        tables = [ROWS_TABLE]
        if shape.counted or shape.expire_after:
            min_count = MIN_COUNT if shape.counted else 1
            tables.append(replace(TRACKED_TABLE, min_count=min_count, expire_after=shape.expire_after))
        return tuple(replace(table, initializer=UNTRAINED) if shape.catches_up else table for table in tables)

    def magnitudes(self, number: int) -> dict[str, tuple[Ids, Floats]]:
        """By table: of the ids that a batch has several times, the sums of squares, float32[n, width]."""
        return {
            name: (ids[REPEATED].copy(), np.float32(REPETITION) * values[REPEATED] ** 2)
            for name, (ids, values) in self.row_gradients(number).items()
        }

    def row_gradients(self, number: int) -> dict[str, tuple[Ids, Floats]]:
        """By table: the ids of a batch, int64[n], and their gradients, float32[n, width]."""
        ids, rows = rows_of(number)
        gradients = {ROWS_TABLE.name: (ids, -rows), TRACKED_TABLE.name: (ids, np.full((ids.size, 1), -1.0, np.float32))}
        return {table.name: gradients[table.name] for table in self.signature.tables}

    @cached_property
    def shares(self) -> Doubles:
        """float64[batches]: how much each batch counts in its update; 0: it is empty."""
        if self.spec.synchronous:
            return np.array([self.share_of_round(*place) for place in self.batches])
        return np.array([float(not self.is_empty(number)) for number in range(len(self.batches))])

    @cached_property
    def initial(self) -> Floats:
        """Initial values of the dense variables: zeros to count in, or the weights of a model that is not trained."""
        size = PARTITIONS * (self._columns + 1)
        if self.shape.kind.trains:
            return np.zeros(size, np.float32)
        return np.arange(1, size + 1, dtype=np.float32)

    @property
    def _columns(self) -> int:
        return max(1, len(self.batches))

    @staticmethod
    def evaluation_checksum(task: TaskId, batch: int) -> int:
        """The checksum of a batch of the validation data."""
        return derive_key(12, task, batch) & ((1 << 64) - 1)

    def is_empty(self, number: int) -> bool:
        """Whether the user's filter drops every record of a batch."""
        return self.shape.empty_every > 0 and number % self.shape.empty_every == self.shape.empty_every - 1

    def share_of_round(self, task: TaskId, batch: int) -> float:
        """How much a batch counts in the update of its round: its share of the records that were not dropped."""
        start = task - task % self.plan.tasks_per_epoch
        first = start + (task - start) // self.shape.grads_to_wait * self.shape.grads_to_wait
        end = min(first + self.shape.grads_to_wait, start + self.plan.tasks_per_epoch)
        places = [(TaskId(one), batch) for one in range(first, end) if (one, batch) in self.numbers]
        records = {place: self.plan.records_of(*place) for place in places if not self.is_empty(self.numbers[place])}
        return records[task, batch] / sum(records.values()) if (task, batch) in records else 0.0

    def metric_states(self, number: int) -> Doubles:
        """The training metrics of a batch, float64[batches]: they say how often each batch was counted."""
        states = np.zeros(len(self.batches))
        states[number] = not self.is_empty(number)
        return states

    def push(self, task: TaskId, batch: int, iterations: Mapping[PodName, int] | None = None) -> PushRequest:
        """What a worker pushes for a batch; ``iterations``: of the weights, by ps."""
        number = self.numbers[task, batch]
        empty = self.is_empty(number)
        gradient = np.zeros((PARTITIONS, len(self.batches)), np.float32)
        gradient[:, number] = -1.0
        return PushRequest(
            task=task,
            batch=batch,
            batches=self.plan.batches_of(task),
            records=self.plan.records_of(task, batch),
            checksum=self.checksums[number],
            base_iterations=iterations or {},
            dense_gradient=None if empty else gradient.reshape(-1),
            statistics_update=np.ones(PARTITIONS, np.float32),
            rows={} if empty else self.row_gradients(number),
            magnitudes={} if empty else self.magnitudes(number),
            metric_states=NO_DOUBLES if empty else self.metric_states(number),
        )


@lru_cache(maxsize=4096)
def rows_of(number: int) -> tuple[Ids, Floats]:
    """Rows that a batch touches and what it adds to them: small whole numbers, so that float32 sums are exact."""
    key = derive_key(5, number)
    ids = np.array(sorted({(key >> shift) % ROWS for shift in (0, 8, 16)}), np.int64)
    values = [float((key >> (24 + 3 * place)) % 7 + 1) for place in range(ids.size * WIDTH)]
    return ids, np.array(values, np.float32).reshape(ids.size, WIDTH)


def _batches(plan: Plan) -> list[tuple[TaskId, int]]:
    return [(task, batch) for task in plan.task_ids() for batch in range(plan.batches_of(task))]


def _checksum(plan: Plan, task: TaskId, batch: int) -> int:
    """The sum of a batch's record hashes: all epochs of a plan have the same sum."""
    rows = [row for shard in plan.shards(task) for row in range(shard.start, shard.end)]
    first = batch * plan.minibatch_size
    places = [plan.record_order(task)[place] for place in range(first, first + plan.records_of(task, batch))]
    return sum(derive_key(11, rows[place]) for place in places) & ((1 << 64) - 1)


def _plan(shape: Shape, *, epochs: int) -> Plan:
    per_task = shape.batches * RECORDS_PER_BATCH
    records = shape.tasks * per_task - 1
    if shape.batches > 1:
        records -= RECORDS_PER_BATCH - 1
    return Plan(
        sources=(Source(uri="memory://data", size_bytes=records, etag="1", records=records),),
        minibatch_size=RECORDS_PER_BATCH,
        minibatches_per_task=shape.batches,
        epochs=epochs,
        shuffle=Shuffle.GLOBAL if shape.global_shuffle else Shuffle.TASKS,
        seed=3,
    )
