"""A small job and model that the ps tests shard, and pushes for it."""

from __future__ import annotations

import numpy as np

from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.model.signature import (
    DenseVariable,
    ModelSignature,
    Number,
    Optimizer,
    RowInitializer,
    RowTable,
    StateRule,
    StateUpdate,
    VariableKind,
)
from elasticdl.shared.names import JobId, TaskId
from elasticdl.shared.wire.messages import NO_FLOATS, Floats
from elasticdl.worker.ps_client import PushRequest

PLAN = Plan(
    sources=(Source(uri="memory://data", size_bytes=1000, etag="1", records=39),),
    minibatch_size=3,
    minibatches_per_task=4,
    epochs=2,
    shuffle=Shuffle.NONE,
    seed=7,
)
"""Per epoch 3 tasks of 4 batches and one of a single batch."""

BATCHES = [(task, batch) for task in PLAN.task_ids() for batch in range(PLAN.batches_of(task))]
ROWS_A, ROWS_B = 40, 17
MOVING_AVERAGE = StateRule(update=StateUpdate.MOVING_AVERAGE, momentum=0.75)


def signature(optimizer: str = "sgd", **hyperparameters: Number) -> ModelSignature:
    uniform = RowInitializer(distribution="uniform", low=-0.5, high=0.5)
    return ModelSignature(
        dense=(
            DenseVariable(name="kernel", shape=(5, 3), kind=VariableKind.TRAINABLE, gathered=True),
            DenseVariable(name="mean", shape=(3,), kind=VariableKind.STATISTIC, state=MOVING_AVERAGE),
            DenseVariable(name="bias", shape=(3,), kind=VariableKind.TRAINABLE),
            DenseVariable(name="frozen", shape=(2,), kind=VariableKind.FROZEN),
        ),
        tables=(
            RowTable(name="a", width=4, initializer=uniform, input_dim=ROWS_A),
            RowTable(name="b", width=2, initializer=uniform, input_dim=ROWS_B),
        ),
        optimizer=Optimizer(name=optimizer, learning_rate=0.1, hyperparameters=hyperparameters),
        seed=11,
    )


DENSE_SIZE, TRAINABLE_SIZE, GATHERED_SIZE, STATISTICS_SIZE = 23, 18, 15, 3


def initial_dense() -> Floats:
    return np.random.default_rng(3).normal(size=DENSE_SIZE).astype(np.float32)


def push_of(task: int, batch: int, *, empty: bool = False, dense: bool = True) -> PushRequest:
    """The push of a batch: a function of its name alone, as a deterministic worker's would be.

    Args:
        dense: whether it has more than its rows.
    """
    random = np.random.default_rng([task, batch])

    def rows(count: int, width: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]:
        ids = random.choice(count, size=random.integers(1, count), replace=False).astype(np.int64)
        return ids, random.normal(size=(ids.size, width)).astype(np.float32)

    gradient = random.normal(size=TRAINABLE_SIZE).astype(np.float32)
    tables = {"a": rows(ROWS_A, 4), "b": rows(ROWS_B, 2)}
    magnitudes = np.square(random.normal(size=GATHERED_SIZE)).astype(np.float32)
    repeated = {name: (ids[::2].copy(), 2 * np.square(gradients[::2])) for name, (ids, gradients) in tables.items()}
    return PushRequest(
        task=TaskId(task),
        batch=batch,
        batches=PLAN.batches_of(TaskId(task)),
        records=PLAN.records_of(TaskId(task), batch),
        checksum=int(random.integers(0, 2**63)) * 2 + 1,
        dense_gradient=None if empty else np.concatenate([gradient, magnitudes]) if dense else NO_FLOATS,
        statistics_update=NO_FLOATS if empty or not dense else random.normal(size=STATISTICS_SIZE).astype(np.float32),
        rows={} if empty else tables,
        magnitudes={} if empty else repeated,
    )


def spec(storage: str, *, ps: int = 1, grads_to_wait: int = 1, evaluation_steps: int = 0) -> JobSpec:
    return JobSpec(
        job=JobId("example-123456"),
        created_s=0.0,
        plan=PLAN,
        checksum=0,
        data=DataSpec(format="csv"),
        model=ModelSpec(path="model.py", symbol="model"),
        storage=storage,
        ps=ps,
        snapshot_interval_s=0.0,
        grads_to_wait=grads_to_wait,
        evaluation_steps=evaluation_steps,
    )
