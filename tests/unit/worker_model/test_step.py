"""The step against a plain Keras model with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import VariableKind
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import RECOMMENDER, Tables, WriteModule, columns, fed, runner_of

pytestmark = pytest.mark.tensorflow


def plain_gradients(module: Any, runner: ModelRunner, tables: Tables, batch: Any) -> tuple[float, dict[str, Any]]:
    """Loss and gradients, as Keras' optimizer gets them, by path of the same model with ordinary embedding layers."""
    import tensorflow as tf
    from keras.src.utils.naming import reset_uids

    reset_uids()
    model = module.make_model()
    if not model.built:
        model(batch.features)
    flat, offset = runner.initial_dense(), {}
    start = 0
    for spec in runner.signature().dense:
        offset[spec.name] = flat[start : start + spec.size].reshape(spec.shape)
        start += spec.size
    for variable in model.weights:
        table = variable.path.removesuffix("/embeddings")
        variable.assign(tables.full[table] if table in tables.full else offset[variable.path])
    with tf.GradientTape() as tape:
        predictions = model(batch.features, training=True)
        arguments = (batch.labels, predictions) if batch.weights is None else (batch.labels, predictions, batch.weights)
        loss = tf.reduce_mean(module.required("loss")(*arguments)) + sum(model.losses)
    trainable = model.trainable_variables
    gradients = tape.gradient(loss, trainable, unconnected_gradients="zero")
    named = {v.path.removesuffix("/embeddings"): g for v, g in zip(trainable, gradients, strict=True)}
    return float(loss), named


def summed(gradient: Any) -> Any:
    """float32, in the variable's shape."""
    import tensorflow as tf

    return tf.convert_to_tensor(gradient).numpy()


def assert_equal_to_plain(module: Any, raw: Any) -> None:
    runner, batch = runner_of(module, raw)
    tables = Tables(runner)
    result = runner.train(batch, runner.initial_dense(), tables.pull(batch), step_seed=1)
    loss, gradients = plain_gradients(module, runner, tables, batch)
    expected = {path: summed(gradient) for path, gradient in gradients.items()}
    assert result.finite
    assert result.loss == pytest.approx(loss, abs=1e-6)
    start = 0
    for spec in runner.signature().dense:
        if spec.kind is VariableKind.TRAINABLE:
            got = result.dense_gradient[start : start + spec.size].reshape(spec.shape)
            np.testing.assert_allclose(got, expected.pop(spec.name), atol=1e-6)
            start += spec.size
    for name, gradient in result.row_gradients.items():
        np.testing.assert_allclose(tables.scattered(name, gradient), expected.pop(name), atol=1e-6)
    assert not expected


def test_functional_model_equals_plain_keras(write_module: WriteModule) -> None:
    assert_equal_to_plain(write_module(RECOMMENDER), columns())


def test_subclassed_model_with_a_shared_layer_equals_plain_keras(write_module: WriteModule) -> None:
    body = """
    class Recommender(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(1000, 4, mask_zero=True, name="shared")
            self.out = layers.Dense(1, activation="sigmoid", kernel_regularizer="l2")

        def call(self, features, training=False):
            item = ops.mean(self.table(features["item"]), axis=1)
            user = self.table(features["user"])
            self.add_loss(0.01 * ops.mean(ops.square(user)))
            return self.out(ops.concatenate([user, item, features["numbers"]], axis=1))

    custom_model = Recommender
    """
    module = write_module(body)
    runner, batch = runner_of(module, columns())
    (table,) = runner.tables
    assert runner.ids(batch)[table.name].shape == (16 * 4,)
    assert_equal_to_plain(module, columns())


def test_sequential_model_equals_plain_keras(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        out = layers.Dense(1, activation="sigmoid")
        return keras.Sequential([layers.Embedding(50, 4, name="items"), layers.GlobalAveragePooling1D(), out])

    def feed_batch(records, mode, metadata):
        return records["item"], records["label"]
    """
    module = write_module(body)
    runner, _ = runner_of(module, columns())
    assert [table.width for table in runner.tables] == [4]
    body_named = runner.tables[0].name
    assert body_named.endswith("items")
    assert_equal_to_plain(module, columns())


def test_dropout_follows_the_step_seed(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        dense = keras.Input((5,), name="numbers")
        x = layers.Dropout(0.5, seed=3)(layers.Dense(64)(dense))
        return keras.Model({"numbers": dense}, layers.Dense(1, activation="sigmoid")(layers.Dropout(0.5)(x)))

    def feed_batch(records, mode, metadata):
        return {"numbers": records["numbers"]}, records["label"]
    """
    runner, batch = runner_of(write_module(body), columns())
    dense = runner.initial_dense()
    first, again, other = (runner.train(batch, dense, step_seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.dense_gradient, again.dense_gradient)
    assert first.loss == again.loss
    assert first.loss != other.loss


def test_two_workers_build_the_same_initial_values(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER)
    first, _ = runner_of(module, columns(), seed=5)
    second, _ = runner_of(module, columns(4), seed=5)
    other, _ = runner_of(module, columns(), seed=6)
    assert first.signature() == second.signature()
    np.testing.assert_array_equal(first.initial_dense(), second.initial_dense())
    assert not np.array_equal(first.initial_dense(), other.initial_dense())


def test_a_ragged_last_batch_is_not_traced_again(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER)
    feeder = BatchFeeder(module, "train", None)
    first, last = feeder.feed(columns(16)), feeder.feed(columns(3, seed=1))
    assert first is not None
    assert last is not None
    runner = ModelRunner(module, first, RunnerSettings(swap_bytes_min=0))
    tables = Tables(runner)
    for batch in (first, last, first):
        assert runner.train(batch, runner.initial_dense(), tables.pull(batch), step_seed=1).finite
    assert feeder.traces == 1
    assert runner.step.traces["train"] == 1
    assert runner.step.traces["train_ids"] == 1


def test_an_eager_step_equals_a_compiled_one(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER)
    compiled, batch = runner_of(module, columns())
    eager, _ = runner_of(module, columns(), eager=True)
    tables = Tables(compiled)
    results = [r.train(batch, r.initial_dense(), tables.pull(batch), step_seed=1) for r in (compiled, eager)]
    np.testing.assert_allclose(results[0].dense_gradient, results[1].dense_gradient, atol=1e-6)
    assert not eager.step.traces


@pytest.mark.parametrize("option", ["global_clipnorm=0.01", "clipnorm=0.005", "clipvalue=0.001"])
def test_clipping_is_that_of_keras(write_module: WriteModule, option: str) -> None:
    module = write_module(RECOMMENDER + f"\ndef optimizer():\n    return keras.optimizers.SGD(0.1, {option})\n")
    runner, batch = runner_of(module, columns())
    tables = Tables(runner)
    result = runner.train(batch, runner.initial_dense(), tables.pull(batch), step_seed=1)
    _, plain = plain_gradients(module, runner, tables, batch)
    clipped = module.make_optimizer()._clip_gradients(list(plain.values()))
    expected = dict(zip(plain, map(summed, clipped), strict=True))
    for name, gradient in result.row_gradients.items():
        np.testing.assert_allclose(tables.scattered(name, gradient), expected.pop(name), atol=1e-7)
    flat = np.concatenate([expected[spec.name].reshape(-1) for spec in runner.signature().dense])
    np.testing.assert_allclose(result.dense_gradient, flat, atol=1e-7)


def test_frozen_embedding_is_pulled_and_not_pushed(write_module: WriteModule) -> None:
    body = RECOMMENDER + (
        "\nmake = custom_model\n\ndef custom_model():\n    model = make()\n"
        "    model.get_layer('user_table').trainable = False\n    return model\n"
    )
    runner, batch = runner_of(write_module(body), columns())
    kinds = {table.name: table.kind for table in runner.tables}
    assert kinds == {"user_table": VariableKind.FROZEN, "item_table": VariableKind.TRAINABLE}
    result = runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1)
    assert list(result.row_gradients) == ["item_table"]


def test_several_outputs_and_sample_weights(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        dense = keras.Input((5,), name="numbers")
        outputs = {"a": layers.Dense(1, name="a")(dense), "b": layers.Dense(2, name="b")(dense)}
        return keras.Model({"numbers": dense}, outputs)

    def loss(labels, predictions, sample_weight):
        errors = ops.square(labels["a"] - predictions["a"])[:, 0] + ops.sum(ops.square(predictions["b"]), axis=1)
        return errors * sample_weight

    def feed_batch(records, mode, metadata):
        weights = tf.range(tf.shape(records["label"])[0])
        return {"numbers": records["numbers"]}, {"a": records["label"]}, tf.cast(weights, tf.float32)

    def eval_metrics_fn():
        return {"a": {"mse": keras.metrics.MeanSquaredError()}}
    """
    module = write_module(body)
    assert_equal_to_plain(module, columns())
    runner, batch = runner_of(module, columns())
    runner.evaluate(batch, runner.initial_dense())
    assert set(runner.merge(runner.metric_states())) == {"loss", "a_mse"}


def test_mixed_precision_overflow_is_reported_and_halves_the_scale(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        dense = keras.Input((5,), name="numbers")
        x = layers.Dense(1, dtype="mixed_float16")(dense)
        return keras.Model({"numbers": dense}, layers.Activation("linear", dtype="float32")(x))

    def loss(labels, predictions):
        return ops.square(labels - predictions) * 1e3

    def feed_batch(records, mode, metadata):
        return {"numbers": records["numbers"]}, records["label"]
    """
    runner, batch = runner_of(write_module(body), columns())
    results = [runner.train(batch, runner.initial_dense(), step_seed=1) for _ in range(40)]
    assert results[0].overflow
    assert not results[0].finite
    assert results[-1].finite
    assert not results[-1].overflow
    assert np.abs(results[-1].dense_gradient).max() > 1.0


def test_gradients_that_are_never_finite_are_no_overflow(write_module: WriteModule) -> None:
    body = """
    @tf.custom_gradient
    def broken(x):
        return x, lambda gradient: gradient * np.nan

    def custom_model():
        dense = keras.Input((5,), name="numbers")
        x = layers.Dense(1, dtype="mixed_float16")(dense)
        return keras.Model({"numbers": dense}, layers.Lambda(broken, dtype="float32", output_shape=(1,))(x))

    def loss(labels, predictions):
        return ops.square(labels - predictions)

    def feed_batch(records, mode, metadata):
        return {"numbers": records["numbers"]}, records["label"]
    """
    runner, batch = runner_of(write_module(body), columns())
    results = [runner.train(batch, runner.initial_dense(), step_seed=1) for _ in range(40)]
    overflows = [result.overflow for result in results]
    assert overflows == [True] * 30 + [False] * 10
    assert not any(result.finite for result in results)
    assert results[-1].problem == "a gradient is NaN or infinite, also with the smallest loss scale of 3.05176e-05"


@pytest.mark.parametrize(("factor", "finite"), [(1e25, True), (np.inf, False)])
@pytest.mark.parametrize("clipping", ["", ", clipvalue=1.0"])
def test_gradients_whose_squares_overflow_are_finite(
    write_module: WriteModule, factor: float, finite: bool, clipping: str
) -> None:
    body = f"""
    @tf.custom_gradient
    def steep(x):
        return x, lambda gradient: gradient * np.float32({"np.inf" if np.isinf(factor) else factor})

    def custom_model():
        dense = keras.Input((5,), name="numbers")
        x = layers.Dense(1)(dense)
        return keras.Model({{"numbers": dense}}, layers.Lambda(steep, output_shape=(1,))(x))

    def loss(labels, predictions):
        return ops.square(labels - predictions)

    def optimizer():
        return keras.optimizers.SGD(0.1{clipping})

    def feed_batch(records, mode, metadata):
        return {{"numbers": records["numbers"]}}, records["label"]
    """
    runner, batch = runner_of(write_module(body), columns())
    result = runner.train(batch, runner.initial_dense(), step_seed=1)
    assert result.finite is finite
    assert np.isfinite(result.dense_gradient).all() or not finite


def test_not_a_number_is_reported(write_module: WriteModule) -> None:
    runner, batch = runner_of(write_module(RECOMMENDER), columns())
    dense = runner.initial_dense()
    dense[0] = np.nan
    result = runner.train(batch, dense, Tables(runner).pull(batch), step_seed=1)
    assert not result.finite
    assert not result.overflow


def test_an_id_outside_its_table_is_named(write_module: WriteModule) -> None:
    module = write_module(RECOMMENDER, users=1000)
    runner, _ = runner_of(module, columns())
    raw = columns()
    raw["user"][3] = 1000
    batch = BatchFeeder(module, "train", None).feed(raw)
    assert batch is not None
    with pytest.raises(UserError, match="id 1000 is outside embedding user_table"):
        runner.ids(batch)


HALF = (
    RECOMMENDER.replace('"relu")', '"relu", dtype="mixed_float16")')
    + """
def loss(labels, predictions):
    return 1e4 * keras.losses.binary_crossentropy(labels, predictions)
"""
)


def test_a_model_that_forgets_its_trial_trains_like_a_new_one(write_module: WriteModule) -> None:
    module = write_module(HALF)
    tried, batch = runner_of(module, columns())
    tables = Tables(tried)
    while tried.train(batch, tried.initial_dense(), tables.pull(batch), step_seed=5).overflow:
        tried.evaluate(batch, tried.initial_dense(), tables.pull(batch, training=False))
    tried.forget()
    new, _ = runner_of(module, columns())
    results = [one.train(batch, one.initial_dense(), tables.pull(batch), step_seed=1) for one in (tried, new)]
    assert [result.overflow for result in results] == [True, True]
    np.testing.assert_array_equal(results[0].metric_states, results[1].metric_states)
    states, expected = (one.metric_states() for one in (tried, new))
    np.testing.assert_equal(dict(states), dict(expected))


@pytest.mark.parametrize("bad", [50, -1])
@pytest.mark.parametrize("served", [True, False])
def test_an_id_outside_its_table_is_refused_dense_or_served(write_module: WriteModule, bad: int, served: bool) -> None:
    raw = columns()
    runner, _ = runner_of(write_module(RECOMMENDER), raw, swap_bytes_min=0 if served else 1 << 30)
    raw["item"][3, 1] = bad
    batch = fed(runner.module, raw)
    dense, pulled = runner.initial_dense(), Tables(runner)
    with pytest.raises(UserError, match=rf"id {bad} is outside embedding item_table|= {bad} is not in \[0, 50\)") as e:
        runner.evaluate(batch, dense, pulled.pull(batch, training=False))
    assert served or (isinstance(e.value, UserCodeError) and e.value.is_about_values)
    assert bad != -1 or served or np.isfinite(runner.built.model(runner.example.features)).all()
