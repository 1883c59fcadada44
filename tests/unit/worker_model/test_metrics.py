"""Metrics add up over workers, or are refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.metric_states import sum_states
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import RECOMMENDER, Tables, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow

OWN_RESET = """
class Own(keras.metrics.Mean):
    def reset_state(self):
        super().reset_state()
"""
METRICS = """
class Error(keras.metrics.Mean):
    def update_state(self, labels, predictions, sample_weight=None):
        super().update_state(ops.abs(labels - predictions))

def eval_metrics_fn():
    return {
        "own_error": Error(),
        "auc": keras.metrics.AUC(num_thresholds=50),
        "accuracy": keras.metrics.BinaryAccuracy(),
        "f1": keras.metrics.F1Score(threshold=0.5),
        "error": lambda labels, predictions: ops.abs(labels - predictions),
        "mean_error": lambda labels, predictions: ops.mean(ops.abs(labels - predictions)),
    }
"""


def test_summed_states_give_the_metrics_of_the_whole(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER + METRICS)
    runner, whole = runner_of(module, columns(20))
    tables = Tables(runner)
    dense = runner.initial_dense()
    runner.evaluate(whole, dense, tables.pull(whole, training=False))
    expected = runner.merge(runner.metric_states())

    feeder = BatchFeeder(module, "evaluate", None)
    raw = columns(20)
    states = []
    for part in (slice(0, 13), slice(13, 20)):
        runner.reset_metrics()
        batch = feeder.feed({name: column[part] for name, column in raw.items()})
        assert batch is not None
        runner.evaluate(batch, dense, tables.pull(batch, training=False))
        states.append(runner.metric_states())
    merged = runner.merge(sum_states(states))
    assert set(merged) == {"loss", "auc", "accuracy", "f1", "error", "mean_error", "own_error"}
    assert merged == pytest.approx(expected, rel=1e-5)
    assert merged["error"] == pytest.approx(merged["mean_error"], rel=1e-5)
    assert all(array.dtype == np.float64 for arrays in states[0].values() for array in arrays)


def test_a_dict_of_results_takes_the_name_of_no_other_result(write_module: WriteModule) -> None:
    body = """
class Shares(keras.metrics.Mean):
    def update_state(self, labels, predictions, sample_weight=None):
        super().update_state(ops.abs(labels - predictions))

    def result(self):
        return {"loss": super().result(), "share": super().result(), "other": super().result()}

def eval_metrics_fn():
    return {"first": Shares(), "second": Shares(), "other": keras.metrics.AUC()}
"""
    runner, _ = runner_of(write_module(RECOMMENDER + body), columns(20))
    firsts = ("first.loss", "share", "first.other")
    assert runner.metric_names == ("loss", *firsts, "second.loss", "second.share", "second.other", "other")


def test_the_training_metrics_of_a_step_are_those_of_its_batch_alone(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(RECOMMENDER + METRICS), columns())
    results = [runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1) for _ in range(2)]
    first, second = (runner.split_states(result.metric_states) for result in results)
    assert runner.merge(first)["loss"] == pytest.approx(results[0].loss, rel=1e-5)
    assert runner.metric_states()["loss"][1] == 0, "evaluations have metrics of their own"
    assert all(any(array.any() for array in arrays) for arrays in first.values())
    np.testing.assert_equal(dict(first), dict(second))
    total = np.sum([result.metric_states for result in results], axis=0)
    assert total.dtype == np.float64
    assert runner.merge(runner.split_states(total))["loss"] == pytest.approx(results[0].loss, rel=1e-5)


def test_metrics_that_do_not_begin_with_zeros_are_reset_for_each_batch(write_module: WriteModule) -> None:
    body = (
        RECOMMENDER
        + OWN_RESET
        + """
def eval_metrics_fn():
    return {"own": Own()}
"""
    )
    runner, batch = runner_of(write_module(body), columns())
    assert not runner.step.train_metrics._is_inside
    results = [runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1) for _ in range(2)]
    np.testing.assert_array_equal(results[0].metric_states, results[1].metric_states)


def test_a_batch_whose_step_fails_is_not_in_the_metrics_of_the_next_one(write_module: WriteModule) -> None:
    body = (
        RECOMMENDER
        + OWN_RESET
        + """
def positive(labels, predictions):
    with tf.control_dependencies([tf.debugging.assert_positive(predictions + LIMIT)]):
        return tf.identity(predictions)

LIMIT = tf.Variable(1.0)

def eval_metrics_fn():
    return {"own": Own(), "positive": positive}
"""
    )
    runner, batch = runner_of(write_module("import tensorflow as tf\n" + body), columns())
    dense, rows = runner.initial_dense(), Tables(runner).pull(batch)
    expected = runner.train(batch, dense, rows, step_seed=1).metric_states
    limit = runner.module.value("LIMIT")
    limit.assign(-9.0)
    with pytest.raises(UserCodeError):
        runner.train(batch, dense, rows, step_seed=1)
    limit.assign(1.0)
    np.testing.assert_array_equal(runner.train(batch, dense, rows, step_seed=1).metric_states, expected)


def test_sums_of_other_metrics_are_refused(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER + METRICS), columns())
    with pytest.raises(UserError, match="state values, but 3 were summed"):
        runner.split_states(np.ones(3))


def test_a_metric_whose_states_do_not_add_up_is_refused_by_name(write_module: WriteModule) -> None:
    body = (
        RECOMMENDER
        + """
class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.largest = self.add_variable((), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))

    def result(self):
        return self.largest.value

def eval_metrics_fn():
    return {"largest": Largest()}
"""
    )
    with pytest.raises(UserError, match="metric 'largest' can't be computed by several workers"):
        runner_of(write_module(body), columns())


def test_something_that_is_no_metric_is_refused(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match="metric 'auc' must be a Keras metric or a function"):
        runner_of(write_module(RECOMMENDER + "\ndef eval_metrics_fn():\n    return {'auc': 'AUC'}\n"), columns())


WEIGHTED = """
import keras
from keras import ops

def custom_model():
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(3, activation="relu")(inputs)
    return keras.Model(inputs, {"score": keras.layers.Dense(1)(hidden), "rank": keras.layers.Dense(1)(hidden)})

def loss(labels, predictions, weights):
    errors = ops.square(labels["score"] - predictions["score"]) + ops.square(labels["rank"] - predictions["rank"])
    return errors[:, 0] * weights

def optimizer():
    return keras.optimizers.SGD(0.1)

def feed_batch(records, mode, metadata):
    features = ops.stack([records["a"], records["b"]], axis=1)
    labels = {"score": records["a"][:, None], "rank": records["b"][:, None]}
    return features, labels, ops.abs(records["a"]) + 0.5

def eval_metrics_fn():
    return {"score": {"mse": keras.metrics.MeanSquaredError()}, "rank": {"mae": keras.metrics.MeanAbsoluteError()}}

def weighted_eval_metrics_fn():
    return {"score": {"mse": keras.metrics.MeanSquaredError(), "mae": keras.metrics.MeanAbsoluteError()}}
"""


def test_metrics_are_those_of_keras_with_and_without_sample_weights(write_module: WriteModule) -> None:
    raw = {name: np.random.default_rng(seed).normal(size=40).astype(np.float32) for seed, name in enumerate("ab")}
    module = write_module(WEIGHTED)
    runner, batch = runner_of(module, raw)
    runner.evaluate(batch, runner.initial_dense(), {})
    found = runner.merge(runner.metric_states())

    model = runner.built.model
    metrics = {"score": [keras.metrics.MeanSquaredError("mse")], "rank": [keras.metrics.MeanAbsoluteError("mae")]}
    weighted = {"score": [keras.metrics.MeanSquaredError("mse"), keras.metrics.MeanAbsoluteError("mae")]}
    model.compile(loss={"score": "mse", "rank": "mse"}, metrics=metrics, weighted_metrics=weighted)
    expected = model.evaluate(
        batch.features,
        batch.labels,
        sample_weight={"score": batch.weights, "rank": batch.weights},
        batch_size=16,
        return_dict=True,
        verbose=0,
    )
    of_keras = {
        "score_mse": expected["score_mse"],
        "rank_mae": expected["rank_mae"],
        "weighted_score_mse": expected["score_weighted_mse"],
        "score_mae": expected["score_mae"],
    }
    assert {name: value for name, value in found.items() if name != "loss"} == pytest.approx(of_keras, rel=1e-5)
    assert found["score_mse"] != pytest.approx(found["weighted_score_mse"], rel=1e-2)


def test_a_metric_for_an_output_that_does_not_exist_is_refused(write_module: WriteModule) -> None:
    raw = {name: np.ones(4, np.float32) for name in "ab"}
    with pytest.raises(UserError, match="is for the output 'rating', which the model does not have") as refused:
        runner_of(write_module(WEIGHTED.replace('"rank": {"mae"', '"rating": {"mae"')), raw)
    assert "score, rank" in refused.value.hint or "rank, score" in refused.value.hint


def test_a_weighted_metric_has_to_take_weights(write_module: WriteModule) -> None:
    body = METRICS.replace("labels, predictions, sample_weight=None", "labels, predictions").replace(
        "eval_metrics_fn", "weighted_eval_metrics_fn"
    )
    with pytest.raises(UserError, match="metric 'own_error' takes no sample weights"):
        runner_of(write_module(RECOMMENDER + body), columns())


def test_states_of_another_file_are_refused(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER + METRICS), columns())
    with pytest.raises(UserError, match="metric 'own_error' are missing"):
        runner.merge({"loss": [np.zeros(()), np.ones(())]})
