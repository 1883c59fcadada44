"""A replica whose optimizer is run by Keras: copies and snapshots hold what it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.worker_replica.test_state import SPEC, commit, initialised, model, rounds

from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.shard.warm_start import WarmStart
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.spec import InitialModel
from elasticdl.shared.model.signature import EMA_MOMENTUM, ModelSignature, VariableKind
from elasticdl.shared.names import JobId
from elasticdl.shared.process.clock import SystemClock
from elasticdl.worker.model.keras_optimizers import KerasOptimizers, Trained
from elasticdl.worker.replica.state import Replica

pytestmark = pytest.mark.tensorflow


def by_keras() -> tuple[KerasOptimizers, ModelSignature]:
    """Lamb for the variables of the example."""
    optimizer, plain = keras.optimizers.Lamb(0.1), model("lamb")
    shapes = [one.shape for one in plain.dense if one.kind is VariableKind.TRAINABLE]
    made = KerasOptimizers(
        [Trained(variable=keras.Variable(np.zeros(shape)), optimizer=optimizer) for shape in shapes], optimizer
    )
    kept = plain.optimizer.run_by_keras(made.classes, made.initial.size)
    return made, replace(plain, optimizer=kept)


def replica(*, has_model: bool = True, averages: bool = False) -> Replica:
    updater, signature = by_keras()
    if averages:
        numbers = {**signature.optimizer.hyperparameters, EMA_MOMENTUM: 0.5}
        signature = replace(signature, optimizer=replace(signature.optimizer, hyperparameters=numbers))
    made = Replica(SPEC, signature, SystemClock(), updater=updater)
    if has_model:
        initialised(made.core, signature)
    return made


def weights(state: Replica, **options: Any) -> Any:
    shard = state.core.shard
    assert shard is not None
    out = np.empty(shard.groups[0].part.size, np.float32)
    shard.groups[0].dense.pull(out, **options)
    return out


def test_a_copy_continues_with_what_the_optimizer_keeps() -> None:
    state, copy = replica(), replica(has_model=False)
    all_rounds = rounds()
    for batches in all_rounds[:3]:
        commit(state, batches)
    copy.load(state.save()())
    for batches in all_rounds[3:]:
        commit(state, batches)
        commit(copy, batches)
    np.testing.assert_array_equal(weights(state), weights(copy))
    assert state.checksums() == copy.checksums()
    other = replica()
    for batches in all_rounds:
        commit(other, batches)
    np.testing.assert_array_equal(weights(state), weights(other))


def test_another_job_continues_with_what_the_optimizer_keeps() -> None:
    first, second = replica(), replica()
    for batches in rounds()[:2]:
        commit(first, batches)
    assert first.core.shard is not None
    assert second.core.shard is not None
    signature, (source,), (group,) = by_keras()[1], first.core.shard.groups, second.core.shard.groups
    initial = InitialModel(job=JobId("first"), has_optimizer=True)
    warm = WarmStart(initial=initial, weights=first.core.shard)
    assert warm.problem(signature) == ""
    group.dense.set(weights(first))
    warm.load_optimizer(signature, group)
    assert group.iteration == source.iteration == 2
    gradient = np.random.default_rng(1).normal(size=group.dense.trainable).astype(np.float32)
    for dense in (source.dense, group.dense):
        dense.push(gradient, Update(rate=0.1, iteration=2))
    np.testing.assert_array_equal(weights(second), weights(first))
    renamed = replace(signature, dense=(replace(signature.dense[0], name="renamed"), *signature.dense[1:]))
    assert "fits only a model with the variables of job first" in warm.problem(renamed)


def test_averages_follow_the_weights_that_keras_makes() -> None:
    state = replica(averages=True)
    first, second = rounds()[:2]
    commit(state, first)
    expected = 0.5 * weights(state)
    commit(state, second)
    expected += 0.5 * weights(state)
    found = weights(state, averages=True)
    np.testing.assert_allclose(found[:18], expected[:18], rtol=1e-6)


def test_a_process_without_keras_reads_the_model_and_trains_nothing() -> None:
    state, reader = replica(), replica(has_model=False)
    commit(state, rounds()[0])
    reader = Replica(SPEC, by_keras()[1], SystemClock())
    reader.load(state.save()())
    np.testing.assert_array_equal(weights(reader), weights(state))
    with pytest.raises(InvariantError):
        commit(reader, rounds()[1])
