"""Regularizers of embedding layers: loss and gradients are those of a dense table, or the job says otherwise."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from elasticdl.shared.errors import UserError

from .conftest import Tables, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow

MODEL = """
import elasticdl.layers

def custom_model():
    item = keras.Input((3,), dtype="int64", name="item")
    table = layers.{layer}, name="t")
    return keras.Model({{"item": item}}, layers.Dense(1, activation="sigmoid")(layers.Flatten()(table(item))))

def feed_batch(records, mode, metadata):
    return {{"item": records["item"]}}, records["label"]
"""


def test_a_regularized_table_stays_dense(write_module: WriteModule) -> None:
    module = write_module(MODEL.format(layer="Embedding(500, 4, 'ones', embeddings_regularizer='l2'"))
    runner, batch = runner_of(module, columns())
    assert runner.tables == ()
    reason = "embedding t stays dense: the gradient of its regularizer changes all rows"
    assert reason in runner.describe()
    dense = runner.initial_dense()
    result = runner.train(batch, dense, step_seed=1)
    plain, _ = runner_of(write_module(MODEL.format(layer="Embedding(500, 4, 'ones'"), name="plain"), columns())
    rows = Tables(plain)
    rows.full["t"][:] = 1.0
    alone = plain.train(batch, plain.initial_dense(), rows.pull(batch), step_seed=1)
    assert result.loss == pytest.approx(alone.loss + 0.01 * 500 * 4, rel=1e-5)
    place = next(n for n, spec in enumerate(runner.signature().dense) if spec.name == "t/embeddings")
    gradient = runner.dense.split(result.dense_gradient)[place].numpy()
    unused = np.setdiff1d(np.arange(500), columns()["item"])
    np.testing.assert_allclose(gradient[unused], 0.02, rtol=1e-5)


@pytest.mark.parametrize("frozen", ["trainable=False", "embeddings_regularizer=None"])
def test_a_regularizer_without_effect_keeps_no_table_dense(write_module: WriteModule, frozen: str) -> None:
    layer = f"Embedding(500, 4, **({{'embeddings_regularizer': 'l2'}} | dict({frozen}))"
    runner, _ = runner_of(write_module(MODEL.format(layer=layer)), columns())
    assert [table.name for table in runner.tables] == ["t"]


def test_a_regularized_table_that_is_frozen_later_is_served(write_module: WriteModule) -> None:
    body = MODEL.format(layer="Embedding(500, 4, embeddings_regularizer='l2'")
    body = body.replace("    return keras.Model(", "    table.trainable = False\n    return keras.Model(")
    runner, _ = runner_of(write_module(body), columns())
    assert [table.name for table in runner.tables] == ["t"]


def test_a_regularized_table_that_is_too_large_to_be_dense_is_refused(write_module: WriteModule) -> None:
    module = write_module(MODEL.format(layer="Embedding(10_000_000, 64, embeddings_regularizer='l1'"))
    message = r"embedding t has an embeddings_regularizer, .* 2.4 GiB it is too large to be dense \(limit 64 MiB\)"
    with pytest.raises(UserError, match=message) as refused:
        runner_of(module, columns())
    assert "weight_decay" in refused.value.hint


def test_a_regularizer_of_an_own_layer_counts_the_rows_of_a_batch_and_the_job_says_so(
    write_module: WriteModule,
) -> None:
    layer = "Embedding(500, 4, embeddings_regularizer='l2'".replace("500, 4", "4, 500")
    body = MODEL.format(layer=layer).replace("layers.Embedding", "elasticdl.layers.Embedding")
    runner, batch = runner_of(write_module(body), columns())
    line = next(line for line in runner.describe() if line.startswith("embedding t"))
    assert line.endswith("served by the ps; its regularizer counts the rows of a batch only")
    plain, _ = runner_of(write_module(MODEL.format(layer="Embedding(500, 4"), name="plain"), columns())
    rows = Tables(plain)
    pulled = rows.pull(batch)
    results = [one.train(batch, one.initial_dense(), pulled, step_seed=1) for one in (runner, plain)]
    squares = float((pulled["t"][0] ** 2).sum())
    assert results[0].loss == pytest.approx(results[1].loss + 0.01 * squares, rel=1e-5)


def test_an_activity_regularizer_counts_alike_in_served_and_dense_tables(write_module: WriteModule) -> None:
    module = write_module(MODEL.format(layer="Embedding(50, 4, 'ones', activity_regularizer='l2'"))
    (served, batch), (dense, _) = (runner_of(module, columns(), swap_bytes_min=size) for size in (0, sys.maxsize))
    rows = Tables(served)
    rows.full["t"][:] = 1.0
    by_rows = served.train(batch, served.initial_dense(), rows.pull(batch), step_seed=1)
    by_table = dense.train(batch, dense.initial_dense(), step_seed=1)
    assert by_rows.loss == pytest.approx(by_table.loss, rel=1e-5)
    place = next(n for n, spec in enumerate(dense.signature().dense) if spec.name == "t/embeddings")
    of_table = dense.dense.split(by_table.dense_gradient)[place].numpy()
    np.testing.assert_allclose(rows.scattered("t", by_rows.row_gradients["t"]), of_table, rtol=1e-4, atol=1e-6)


def test_a_table_with_a_constraint_is_dense_or_refused(write_module: WriteModule) -> None:
    layer = "Embedding(500, 4, embeddings_constraint='{}'"
    runner, _ = runner_of(write_module(MODEL.format(layer=layer.format("non_neg"))), columns())
    assert [spec.nonnegative for spec in runner.signature().dense if spec.name == "t/embeddings"] == [True]
    with pytest.raises(UserError, match=r"variable t/embeddings has the constraint MaxNorm"):
        runner_of(write_module(MODEL.format(layer=layer.format("max_norm")), name="norm"), columns())
