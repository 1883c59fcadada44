"""The optimizer of a script after a job: each of its variables is what Keras' own updates would have made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from elasticdl.cli.script.optimizer_state import SLOTS, State, assign, note_movers, restore, restore_or_say
from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.engine.optimizers import OPTIMIZERS, Update
from elasticdl.shared.model.signature import DenseVariable, ModelSignature, VariableKind
from elasticdl.worker.model.keras_optimizers import KerasOptimizers, Trained
from elasticdl.worker.model.optimizers import translate

pytestmark = pytest.mark.tensorflow
UPDATES = 3
KINDS: list[Callable[[], Any]] = [
    lambda: keras.optimizers.SGD(0.1),
    lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    lambda: keras.optimizers.Adagrad(0.1),
    lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    lambda: keras.optimizers.AdamW(0.1, use_ema=True),
    lambda: keras.optimizers.RMSprop(0.1, centered=True, momentum=0.9),
    lambda: keras.optimizers.Ftrl(0.1),
    lambda: keras.optimizers.Adadelta(0.1),
    lambda: keras.optimizers.Adamax(0.1),
    lambda: keras.optimizers.Nadam(0.1),
    lambda: keras.optimizers.Lion(0.1),
]


def small(optimizer: Any) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((3,)), keras.layers.Dense(2, name="dense"), keras.layers.BatchNormalization(name="norm")]
    model = keras.Sequential(layers, name="small")
    model.compile(optimizer, "mse")
    return model


def trainable(name: str, shape: tuple[int, ...]) -> DenseVariable:
    return DenseVariable(name=name, shape=shape, kind=VariableKind.TRAINABLE)


@pytest.mark.parametrize("make", KINDS)
def test_an_optimizer_gets_the_state_that_keras_would_have_made(make: Callable[[], Any]) -> None:
    plain, model = small(make()), small(make())
    variables = plain.trainable_variables
    rng = np.random.default_rng(1)
    gradients = [[rng.normal(size=one.shape).astype("float32") for one in variables] for _ in range(UPDATES)]
    optimizer = translate(make()).optimizer
    specs = tuple(trainable(one.path, tuple(one.shape)) for one in variables)
    store = DenseStore(specs, optimizer)
    store.set(np.concatenate([one.numpy().ravel() for one in variables]))
    for number, each in enumerate(gradients):
        store.push(
            np.concatenate([one.ravel() for one in each]), Update(rate=optimizer.learning_rate, iteration=number)
        )
        plain.optimizer.apply(each, variables)
    signature = ModelSignature(dense=specs, tables=(), optimizer=optimizer, seed=0)
    assert assign(model, State(signature=signature, slots=store.slots, iteration=UPDATES))
    assert len(model.optimizer.variables) == len(plain.optimizer.variables)
    for ours, theirs in zip(model.optimizer.variables, plain.optimizer.variables, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6, err_msg=ours.name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Lamb(0.1),
        lambda: keras.optimizers.Muon(0.1),
        lambda: keras.optimizers.Adafactor(0.1, use_ema=True, ema_momentum=0.5),
    ],
)
def test_an_optimizer_that_keras_runs_in_a_ring_gets_what_it_keeps(make: Callable[[], Any]) -> None:
    plain, model = small(make()), small(make())
    variables = plain.trainable_variables
    updater = KerasOptimizers([Trained(variable=one, optimizer=plain.optimizer) for one in variables], plain.optimizer)
    optimizer = translate(make(), replicated=True).optimizer.run_by_keras(updater.classes, updater.initial.size)
    specs = tuple(trainable(one.path, tuple(one.shape)) for one in variables)
    store = DenseStore(specs, optimizer, updater=updater)
    store.set(np.concatenate([one.numpy().ravel() for one in variables]))
    rng = np.random.default_rng(1)
    for number in range(UPDATES):
        each = [rng.normal(size=one.shape).astype("float32") for one in variables]
        store.push(
            np.concatenate([one.ravel() for one in each]), Update(rate=optimizer.learning_rate, iteration=number)
        )
        plain.optimizer.apply(each, variables)
    signature = ModelSignature(dense=specs, tables=(), optimizer=optimizer, seed=0)
    assert assign(model, State(signature=signature, slots=store.slots, iteration=UPDATES))
    for ours, theirs in zip(model.optimizer.variables, plain.optimizer.variables, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6, err_msg=ours.name)


@pytest.mark.parametrize("first_is_compiled", [False, True])
def test_several_optimizers_get_what_each_of_them_keeps(first_is_compiled: bool) -> None:
    plain, model = small(keras.optimizers.RMSprop()), small(keras.optimizers.RMSprop())
    makes: list[Callable[[], Any]] = [
        lambda: keras.optimizers.Adam(0.1),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    ]
    of_each = [[0, 3], [2]]  # Kernel and beta, gamma; nothing moves the bias.
    ours, theirs = [make() for make in makes], [make() for make in makes]
    if first_is_compiled:
        model.optimizer, plain.optimizer = ours[1], theirs[1]
    movers = {id(model.trainable_variables[n]): ours[k] for k, numbers in enumerate(of_each) for n in numbers}
    note_movers(model, movers)
    variables = plain.trainable_variables
    moved = {n: theirs[k] for k, numbers in enumerate(of_each) for n in numbers}
    trained = [Trained(variable=one, optimizer=moved.get(n)) for n, one in enumerate(variables)]
    updater = KerasOptimizers(trained, theirs[1] if first_is_compiled else theirs[0])
    specs = tuple(trainable(one.path, tuple(one.shape)) for one in variables)
    optimizer = translate(makes[0](), replicated=True, by_keras=True).optimizer
    optimizer = optimizer.run_by_keras(updater.classes, updater.initial.size)
    store = DenseStore(specs, optimizer, updater=updater)
    store.set(np.concatenate([one.numpy().ravel() for one in variables]))
    rng = np.random.default_rng(1)
    for number in range(UPDATES):
        each = [rng.normal(size=one.shape).astype("float32") for one in variables]
        store.push(np.concatenate([one.ravel() for one in each]), Update(rate=0.1, iteration=number))
        for applied, numbers in zip(theirs, of_each, strict=True):
            applied.apply([each[n] for n in numbers], [variables[n] for n in numbers])
    signature = ModelSignature(dense=specs, tables=(), optimizer=optimizer, seed=0)
    assert assign(model, State(signature=signature, slots=store.slots, iteration=UPDATES))
    for has, wanted in zip(ours, theirs, strict=True):
        assert len(has.variables) == len(wanted.variables)
        for one, other in zip(has.variables, wanted.variables, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-6, err_msg=one.name)


def test_each_optimizer_of_the_ps_is_known() -> None:
    assert SLOTS.keys() == OPTIMIZERS.keys()


def test_a_state_of_another_model_and_a_job_without_snapshots_are_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small("adam")
    spec = trainable("dense/kernel", (5, 2))
    optimizer = translate(keras.optimizers.Adam()).optimizer
    signature = ModelSignature(dense=(spec,), tables=(), optimizer=optimizer, seed=0)
    assert not assign(model, State(signature=signature, slots=np.ones((2, 10), np.float32), iteration=1))
    assert restore(model, tmp_path.as_uri(), "job-1") == "the snapshots lack a part of the model"
    assert restore(model, "nowhere://folder", "job-1").startswith("a snapshot can't be read: ")
    restore_or_say(model, tmp_path.as_uri(), "job-1")
    assert capsys.readouterr().out == (
        "The optimizer of small does not have the state of job job-1: the snapshots lack a part of the model.\n"
    )
    assert not model.optimizer.built
