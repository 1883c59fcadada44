"""Synchronized batch normalisation: the batches of a round against one process with the concatenated batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import StateUpdate, VariableKind
from elasticdl.worker.model.runner import ModelRunner, StepResult
from elasticdl.worker.ports import Doubles

from .conftest import WriteModule, columns, fed, runner_of
from .test_layer_state import model_of

pytestmark = pytest.mark.tensorflow

NETWORK = model_of(
    "x = layers.Dense(8)(x)",
    "x = layers.BatchNormalization(synchronized=True, momentum=0.9)(x)",
    "x = layers.Dense(6, activation='tanh')(x)",
    "left = layers.BatchNormalization(synchronized=True, momentum=0.5, name='left')(x)",
    "right = layers.BatchNormalization(synchronized=True, scale=False)(x * x)",
    "x = layers.Concatenate()([left, right])",
)
MASKED = """
def feed_batch(records, mode, metadata):
    return tf.cast(records["item"], tf.float32)[..., None] * [[[0.02, 0.1, -0.3]]], records["label"]

def custom_model():
    x = inputs = keras.Input((3, 3))
    x = layers.Masking(mask_value=0.0)(x)
    x = layers.BatchNormalization(synchronized=True)(x)
    x = layers.GlobalAveragePooling1D()(layers.Dense(4, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
"""


class Meeting:
    """Where the steps of a round, one thread each, add up what they give."""

    def __init__(self, members: int) -> None:
        self._barrier = threading.Barrier(members, timeout=60)
        self._given: dict[int, Doubles] = {}

    def add(self, member: int, values: Doubles) -> Doubles:
        self._given[member] = values
        self._barrier.wait()
        total = np.sum([self._given[one] for one in sorted(self._given)], axis=0)
        self._barrier.wait()
        return np.asarray(total)


class Member:
    """One batch of a round."""

    def __init__(self, meeting: Meeting, number: int, records: int) -> None:
        self._meeting, self._number, self._records = meeting, number, records

    def reduce(self, position: int, values: Doubles, *, backward: bool) -> Doubles:
        weight = float(self._records) if backward else 1.0
        return self._meeting.add(self._number, weight * values) / weight


def parts_of(raw: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Consecutive records in batches of these sizes."""
    bounds = np.cumsum(sizes)[:-1]
    columns_of = {name: np.split(values, bounds) for name, values in raw.items()}
    return [{name: parts[number] for name, parts in columns_of.items()} for number in range(len(sizes))]


def trained_together(runner: ModelRunner, parts: list[dict[str, Any]], dense: Any) -> list[StepResult]:
    """One step of each batch, side by side."""
    batches = [fed(runner.module, part) for part in parts]
    meeting = Meeting(len(parts))
    results: dict[int, StepResult] = {}

    def train(number: int) -> None:
        member = Member(meeting, number, batches[number].count)
        results[number] = runner.train(batches[number], dense.copy(), step_seed=1, reducer=member)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == len(parts)
    return [results[number] for number in range(len(parts))]


def weighted(parts: list[Any], sizes: Sequence[int]) -> Any:
    return np.average(np.array(parts, np.float64), axis=0, weights=sizes)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 3), (7, 6, 1)])
@pytest.mark.parametrize("body", [NETWORK, MASKED])
def test_a_round_equals_one_process_with_the_concatenated_batch(
    write_module: WriteModule, body: str, sizes: tuple[int, ...]
) -> None:
    raw = columns(sum(sizes))
    raw["numbers"] = raw["numbers"] * [1.0, 0.01, 30.0, 1.0, 1.0] + [0.0, 50.0, 0.0, 1.0, 0.0]
    raw["numbers"] = raw["numbers"].astype(np.float32)
    plain, whole = runner_of(write_module(body.replace("synchronized=True", "synchronized=False"), name="plain"), raw)
    runner, _ = runner_of(write_module(body), raw, synchronous=True)
    dense = runner.initial_dense()
    expected = plain.train(whole, dense.copy(), step_seed=1)
    results = trained_together(runner, parts_of(raw, sizes), dense)
    scale = np.abs(expected.dense_gradient).max()
    np.testing.assert_allclose(
        weighted([one.dense_gradient for one in results], sizes), expected.dense_gradient, atol=1e-5 * scale
    )
    np.testing.assert_allclose(weighted([one.loss for one in results], sizes), expected.loss, rtol=1e-6)
    for one in results:
        np.testing.assert_allclose(one.statistics_update, expected.statistics_update, rtol=1e-5, atol=1e-6)


def test_each_batch_has_its_own_loss_scale(write_module: WriteModule) -> None:
    body = "keras.mixed_precision.set_global_policy('mixed_float16')\n" + NETWORK
    raw = columns(12)
    try:
        runner, _ = runner_of(write_module(body), raw, synchronous=True)
    finally:
        import keras

        keras.mixed_precision.set_global_policy("float32")
    dense, parts = runner.initial_dense(), parts_of(raw, (8, 4))
    once = trained_together(runner, parts, dense)
    assert all(one.finite for one in once)
    assert runner._loss_scale is not None
    runner._loss_scale.value /= 64
    again = trained_together(runner, parts, dense)
    for one, other in zip(once, again, strict=True):
        np.testing.assert_allclose(one.dense_gradient, other.dense_gradient, rtol=0.02, atol=2e-3)


def test_one_overflow_halves_the_loss_scale_once(write_module: WriteModule) -> None:
    body = "keras.mixed_precision.set_global_policy('mixed_float16')\n" + NETWORK
    raw = columns(12)
    try:
        runner, _ = runner_of(write_module(body), raw, synchronous=True)
    finally:
        import keras

        keras.mixed_precision.set_global_policy("float32")
    assert runner._loss_scale is not None
    runner._loss_scale.value = 2.0**40
    parts = parts_of(raw, (8, 4))
    results = trained_together(runner, parts, runner.initial_dense())
    assert all(one.overflow for one in results)
    assert runner._loss_scale.value == 2.0**40, "a step may run for its contributions only"
    for part, result in zip(parts, results, strict=True):
        runner.measure(fed(runner.module, part), result)
    assert runner._loss_scale.value == 2.0**39


def test_metrics_are_counted_when_they_are_measured(write_module: WriteModule) -> None:
    raw = columns(12)
    runner, batch = runner_of(write_module(NETWORK), raw, synchronous=True)
    (first, _) = trained_together(runner, parts_of(raw, (6, 6)), runner.initial_dense())
    assert first.metric_states.size == 0
    measured = runner.measure(fed(runner.module, parts_of(raw, (6, 6))[0]), first)
    assert runner.split_states(measured.metric_states)["loss"][1] == 6
    for _ in range(3):
        alone = runner.train(batch, runner.initial_dense(), step_seed=1)
        assert runner.split_states(alone.metric_states)["loss"][1] == 12
    assert runner.step.traces["measure"] <= 2


def test_an_error_of_another_batch_ends_the_step(write_module: WriteModule) -> None:
    class Broken:
        def reduce(self, position: int, values: Doubles, *, backward: bool) -> Doubles:
            raise UserError("the round is over")

    runner, batch = runner_of(write_module(NETWORK), columns(), synchronous=True)
    with pytest.raises(UserError, match="the round is over"):
        runner.train(batch, runner.initial_dense(), step_seed=1, reducer=Broken())


def test_the_moving_statistics_are_moving_averages(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(NETWORK), columns(), synchronous=True)
    state = [spec.state for spec in runner.signature().dense if spec.kind is VariableKind.STATISTIC]
    assert len(state) == 6
    assert {one.update for one in state} == {StateUpdate.MOVING_AVERAGE}


def test_an_asynchronous_job_refuses_synchronized_layers(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match="layer 'left' has synchronized=True") as caught:
        runner_of(write_module(model_of("x = layers.BatchNormalization(synchronized=True, name='left')(x)")), columns())
    assert "--use_async=false" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("computed", "message"),
    [
        ("self.norm(x + tf.random.normal((5,)), training=training)", "draws from tf.random"),
        (
            "self.norm(tf.ensure_shape(tf.numpy_function(np.abs, [x], tf.float32), x.shape), training=training)",
            "Python",
        ),
        ("tf.cond(tf.shape(x)[0] > 3, lambda: self.norm(x, training=training), lambda: x)", "a loop or a condition"),
        ("Own(x, training=training)", "overrides Keras' _moments"),
    ],
)
def test_what_a_round_can_not_share_is_refused(write_module: WriteModule, computed: str, message: str) -> None:
    body = f"""
    class Own(layers.BatchNormalization):
        def _moments(self, inputs, mask):
            return super()._moments(inputs, mask)

    class Normed(layers.Layer):
        def build(self, shape):
            self.norm = (Own if {"Own" in computed} else layers.BatchNormalization)(synchronized=True)
            self.norm.build(shape)

        def call(self, x, training=False):
            return {computed.replace("Own", "self.norm")}

        def compute_output_shape(self, shape):
            return shape

    def custom_model():
        x = inputs = keras.Input((5,))
        return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(Normed()(x)))

    def feed_batch(records, mode, metadata):
        return records["numbers"], records["label"]
    """
    with pytest.raises(UserError, match=message):
        runner_of(write_module(body), columns(), synchronous=True)
