"""Keras optimizers as the ps takes them."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import ModelSignature, Optimizer
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.module import UserModule

from .conftest import RECOMMENDER, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow


def translated(write_module: WriteModule, expression: str, before: str = "") -> Optimizer:
    from elasticdl.worker.model.optimizers import translate

    module = write_module(
        f"custom_model = None\n{before}\ndef optimizer():\n    return {expression}\n".replace("= None", "= keras.Model")
    )
    return translate(module.make_optimizer()).optimizer


@pytest.mark.parametrize(
    ("expression", "name", "hyperparameters"),
    [
        ("keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)", "sgd", {"momentum": 0.9, "nesterov": True}),
        ("keras.optimizers.Adagrad(0.1)", "adagrad", {"initial_accumulator_value": 0.1, "epsilon": 1e-7}),
        (
            "keras.optimizers.Adam(0.1, amsgrad=True)",
            "adam",
            {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": True},
        ),
        (
            "keras.optimizers.AdamW(0.1)",
            "adamw",
            {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": False, "weight_decay": 0.004},
        ),
        (
            "keras.optimizers.RMSprop(0.1, centered=True)",
            "rmsprop",
            {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": True},
        ),
        (
            "keras.optimizers.Ftrl(0.1)",
            "ftrl",
            {
                "learning_rate_power": -0.5,
                "initial_accumulator_value": 0.1,
                "l1_regularization_strength": 0.0,
                "l2_regularization_strength": 0.0,
                "l2_shrinkage_regularization_strength": 0.0,
                "beta": 0.0,
            },
        ),
        ("keras.optimizers.Adadelta(0.1)", "adadelta", {"rho": 0.95, "epsilon": 1e-7}),
        ("keras.optimizers.Adamax(0.1)", "adamax", {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}),
        ("keras.optimizers.Nadam(0.1)", "nadam", {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}),
        ("keras.optimizers.Lion(0.1)", "lion", {"beta_1": 0.9, "beta_2": 0.99}),
    ],
)
def test_hyperparameters_keep_keras_names(
    write_module: WriteModule, expression: str, name: str, hyperparameters: dict[str, float]
) -> None:
    optimizer = translated(write_module, expression)
    assert optimizer.name == name
    assert optimizer.learning_rate == pytest.approx(0.1)
    assert dict(optimizer.hyperparameters) == hyperparameters


def test_a_built_in_schedule_is_computed_by_the_ps(write_module: WriteModule) -> None:
    optimizer = translated(
        write_module, "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.5, 100, 0.9))"
    )
    assert optimizer.schedule == "ExponentialDecay"
    assert dict(optimizer.schedule_config) == {
        "initial_learning_rate": 0.5,
        "decay_steps": 100,
        "decay_rate": 0.9,
        "staircase": False,
    }
    assert not optimizer.rate_from_worker


def test_a_schedule_of_the_users_own_is_computed_by_the_worker(write_module: WriteModule) -> None:
    body = (
        RECOMMENDER
        + """
class Halving(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5 ** ops.cast(step, "float32")

def optimizer():
    return keras.optimizers.SGD(Halving())
"""
    )
    runner, _ = runner_of(write_module(body), columns())
    assert runner.signature().optimizer.rate_from_worker
    assert [runner.rate(iteration) for iteration in (0, 1, 3)] == [1.0, 0.5, 0.125]


def test_a_schedule_that_raises_is_the_users_mistake(write_module: WriteModule) -> None:
    body = (
        RECOMMENDER
        + """
class Broken(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        raise ValueError("no rate")

def optimizer():
    return keras.optimizers.SGD(Broken())
"""
    )
    with pytest.raises(UserCodeError, match=r"the learning-rate schedule of .* raised ValueError at .*: no rate"):
        runner_of(write_module(body), columns())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("keras.optimizers.Lamb()", "Lamb is not supported: each update needs the norm of a whole variable"),
        ("keras.optimizers.Adafactor()", "Adafactor is not supported: each update needs means over whole rows"),
        ("keras.optimizers.Muon()", "Muon is not supported: each update needs a whole matrix"),
        ("keras.optimizers.ScheduleFreeAdamW()", "ScheduleFreeAdamW is not supported: it evaluates and exports other"),
        ("type('Mine', (keras.optimizers.SGD,), {})()", "the optimizer Mine is not supported\n"),
        ("keras.optimizers.SGD(gradient_accumulation_steps=4)", "--grads_to_wait"),
        ("keras.optimizers.SGD(loss_scale_factor=4.0)", "mixed_float16"),
        ("keras.optimizers.SGD(lambda: 0.1)", "learning_rate is a function"),
    ],
)
def test_what_cannot_be_honoured_is_refused(write_module: WriteModule, expression: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        translated(write_module, expression)


BLOCKS = """
class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table, self.norm = layers.Embedding(50, 4, name="word_table"), layers.LayerNormalization()
        self.dense = layers.Dense(4)

    def call(self, item):
        return self.dense(self.norm(self.table(item)))

def custom_model():
    item = keras.Input((3,), dtype="int64", name="item")
    x = layers.Flatten()(Block(name="first")(item))
    x = layers.Concatenate()([x, layers.Flatten()(layers.Embedding(50, 4, name="item_table")(item))])
    x = layers.LayerNormalization(name="layer_norm_last")(x)
    return keras.Model({"item": item}, layers.Dense(1, activation="sigmoid", name="last")(x))

def feed_batch(records, mode, metadata):
    return {"item": records["item"]}, records["label"]
"""


@pytest.mark.parametrize(
    "patterns",
    [["layer_norm", "bias"], ["gamma", "beta"], ["item_table"], ["embeddings"], ["first"], ["dense"], ["bias$"], []],
)
@pytest.mark.parametrize("optimizer", ["AdamW(0.1)", "SGD(0.1, weight_decay=0.01)"])
def test_weight_decay_leaves_out_what_fit_leaves_out(
    write_module: WriteModule, optimizer: str, patterns: list[str]
) -> None:
    body = f"""
def optimizer():
    made = keras.optimizers.{optimizer}
    made.exclude_from_weight_decay(var_names={patterns})
    return made
"""
    module = write_module(BLOCKS + body)
    runner, _ = runner_of(module, columns())
    signature = runner.signature()
    found = {spec.name: spec.weight_decay for spec in signature.dense}
    found |= {f"{table.name}/embeddings": table.weight_decay for table in signature.tables}
    assert len(signature.tables) == 2
    assert found == _decayed_by_keras(module)
    assert ModelSignature.from_json(signature.to_json()) == signature
    decaying = [table.name for table in signature.tables if table.weight_decay]
    lines = [line for line in runner.describe() if line.startswith("weight decay")]
    dense = sum(spec.weight_decay for spec in signature.dense)
    names = f" ({', '.join(decaying)})" if decaying else ""
    said = f"weight decay: {dense} of 8 dense variables, {len(decaying)} of 2 tables on the ps{names}"
    assert lines == ([] if all(found.values()) else [said])


def _decayed_by_keras(module: UserModule) -> dict[str, bool]:
    """Which variables of the same model a dense optimizer of Keras moves without a gradient."""
    import keras
    from keras.src.utils.naming import reset_uids

    reset_uids()
    model, optimizer = module.make_model(), module.make_optimizer()
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(keras.ops.ones_like(variable))
    optimizer.apply([keras.ops.zeros_like(variable) for variable in variables], variables)
    return {variable.path: bool((variable.numpy() != 1).any()) for variable in variables}


def test_averages_and_non_negative_weights_reach_the_signature(write_module: WriteModule) -> None:
    body = """
def custom_model():
    inputs = keras.Input((4,), name="numbers")
    return keras.Model(inputs, layers.Dense(1, kernel_constraint="non_neg")(inputs))

def optimizer():
    return keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
    raw = {"numbers": np.ones((4, 4), np.float32), "label": np.ones((4, 1), np.float32)}
    runner, _ = runner_of(write_module(body), raw)
    signature = runner.signature()
    assert {spec.name.rpartition("/")[2]: spec.nonnegative for spec in signature.dense} == {
        "kernel": True,
        "bias": False,
    }
    given = dict(signature.optimizer.hyperparameters)
    assert (given["ema_momentum"], given["ema_overwrite_frequency"]) == (0.5, 3)
    assert ModelSignature.from_json(signature.to_json()) == signature
