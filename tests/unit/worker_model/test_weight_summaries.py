"""Histograms of weights, read back with TensorBoard's own reader and compared with its own histograms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.graph.keras_util import keras_model_to_graph_def
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.util.tensor_util import make_ndarray
from tests.unit.master.driver import job_spec
from tests.unit.worker_model.conftest import WriteModule, runner_of
from tests.unit.worker_model.test_callbacks import FACTS, PATH, Job

from elasticdl.worker.model.export import weight_summaries
from elasticdl.worker.model.user.callbacks.accepted import check_callbacks, with_hooks

pytestmark = pytest.mark.tensorflow

MODEL = """
inputs = keras.Input((3,), dtype="int32", name="ids")
rows = keras.layers.Embedding(40, 2, name="items")(inputs)
outputs = keras.layers.Dense(1, name="last")(keras.layers.Flatten()(rows))
custom_model = keras.Model(inputs, outputs)
custom_model.compile("sgd", "mse")

def feed_batch(records, mode, metadata):
    return records["ids"], records["label"]
"""
RAW = {"ids": np.arange(12, dtype=np.int32).reshape(4, 3), "label": np.zeros((4, 1), np.float32)}


@settings(deadline=None)
@given(arrays(np.float32, st.integers(0, 200), elements=st.floats(-1e3, 1e3, width=32)))
def test_histograms_are_those_of_tensorboard(data: Any) -> None:
    (expected,) = histogram_pb("tag", data).value
    found = weight_summaries._histogram("tag", data)
    assert found.metadata.SerializeToString() == expected.metadata.SerializeToString()
    np.testing.assert_array_equal(make_ndarray(found.tensor), make_ndarray(expected.tensor))


def test_values_that_are_not_finite_are_left_out() -> None:
    found = make_ndarray(weight_summaries._histogram("tag", np.array([1.0, np.nan, np.inf, 3.0])).tensor)
    assert (found[0, 0], found[-1, 1], found[:, 2].sum()) == (1.0, 3.0, 2)


def test_tensorboard_reads_weights_row_norms_and_the_graph(write_module: WriteModule, tmp_path: Path) -> None:
    runner, _ = runner_of(write_module(MODEL), RAW)
    asked: list[Any] = []

    def rows_of(table: str, ids: Any) -> Any:
        asked.append((table, ids))
        return np.stack([3.0 * ids, 4.0 * ids], axis=1).astype(np.float32)

    dense = np.arange(runner.dense.size, dtype=np.float32)
    for epoch in (0, 2):
        content = weight_summaries.encode(runner, dense, rows_of, epoch, graph=epoch == 0)
        (tmp_path / f"events.out.tfevents.1.{epoch}").write_bytes(content)
    accumulator = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    accumulator.Reload()
    (table,) = runner.tables
    histograms = {f"{one.name}/histogram" for one in runner.dense.specs} | {f"{table.name}/row_norms/histogram"}
    assert set(accumulator.Tags()["tensors"]) == {"keras", *histograms}
    norms = accumulator.Tensors(f"{table.name}/row_norms/histogram")
    assert [one.step for one in norms] == [0, 2]
    buckets = make_ndarray(norms[0].tensor_proto)
    assert (buckets[0, 0], buckets[-1, 1], buckets[:, 2].sum()) == (0.0, 5.0 * 39, 40)
    assert [list(ids) for _, ids in asked] == [list(range(40))] * 2
    (graph,) = accumulator.Tensors("keras")
    drawn = keras_model_to_graph_def(json.loads(make_ndarray(graph.tensor_proto).item()))
    assert {"ids", "items", "last"} <= {node.name.rpartition("/")[2] for node in drawn.node}
    assert any("last" in node.name and node.op == "MatMul" for node in accumulator.Graph().node)


def test_the_graph_of_operations_has_no_large_constants(write_module: WriteModule) -> None:
    model = """
import numpy as np
records_of = keras.Input((3,), name="numbers")
class Wide(keras.layers.Layer):
    def call(self, x):
        return keras.ops.matmul(x, np.random.default_rng(1).normal(size=(3, 90_000)).astype("float32"))
custom_model = keras.Model(records_of, keras.layers.Dense(1)(Wide()(records_of)))
custom_model.compile("sgd", "mse")

def feed_batch(records, mode, metadata):
    return records["ids"], records["label"]
"""
    raw = {"ids": np.ones((4, 3), np.float32), "label": np.zeros((4, 1), np.float32)}
    runner, _ = runner_of(write_module(model), raw)
    content = weight_summaries._operations(runner)
    assert content is not None
    assert len(content) < 50_000


def test_a_large_table_is_sampled_evenly() -> None:
    asked: list[Any] = []

    def rows_of(table: str, ids: Any) -> Any:
        asked.append(ids)
        return ids[:, None].astype(np.float32)

    norms = weight_summaries._norms("t", 10_000_000, rows_of)
    assert (norms.size, norms[0], norms[-1]) == (weight_summaries.ROWS_MAX, 0.0, 9_999_999.0)
    assert weight_summaries._norms("t", 3, rows_of).tolist() == [0.0, 1.0, 2.0]
    assert weight_summaries._norms("t", 1, rows_of).tolist() == [0.0]
    asked.clear()
    weight_summaries._norms("t", 2**63 - 1, rows_of)
    assert (asked[0][0], asked[-1][-1]) == (0, 2**63 - 2)


def graph_of(model: Any) -> dict[str, set[str]]:
    """Layer -> its inputs, as TensorBoard draws a model."""
    described = weight_summaries._graph(model)
    assert described is not None
    drawn = keras_model_to_graph_def(json.loads(make_ndarray(described.tensor).item()))
    return {node.name.rpartition("/")[2]: {name.rpartition("/")[2] for name in node.input} for node in drawn.node}


def test_the_graph_has_operations_nested_models_and_no_vocabularies() -> None:
    words = keras.Input((1,), dtype="string", name="words")
    lookup = keras.layers.StringLookup(vocabulary=[f"word{number:020}" for number in range(50_000)], name="lookup")
    other = keras.Input((1,), name="other")
    numbers = keras.Input((2,), name="numbers")
    inner = keras.Model(numbers, keras.layers.Dense(2, name="dense")(numbers), name="inner")
    scaled = keras.ops.cast(lookup(words), "float32") * 100 + 1
    joined = keras.layers.Concatenate(name="joined", axis=-1)([scaled, other])
    model = keras.Model({"words": words, "other": other}, keras.layers.Dense(1, name="last")(inner(joined)))
    drawn = graph_of(model)
    assert {"words", "other", "lookup", "joined", "dense", "last"} <= set(drawn)
    assert drawn["lookup"] == {"words"}
    assert "other" in drawn["joined"]
    assert len(drawn["joined"]) == 2
    chain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="one"), keras.layers.Dense(1, name="two")])
    assert graph_of(chain)["two"] == {"one"}


def test_a_subclassed_model_has_no_graph() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        pass

    assert weight_summaries._graph(Own()) is None


def test_histograms_are_written_in_the_epochs_of_keras_whichever_process_writes_them() -> None:
    def make() -> list[Any]:
        return with_hooks([keras.callbacks.TensorBoard("curves", histogram_freq=2)])

    job = Job(make)
    job.run(1)
    for epoch in range(5):
        if epoch == 3:
            job.restart()
        job.run(2 * epoch + 2, is_last=epoch == 4, loss=1.0)
    assert [wanted[:2] for wanted in job.summaries] == [(0, True), (2, False), (4, False)]
    assert all(instances == {"ps-0": "ps-0-1"} for *_, instances in job.summaries)
    found = check_callbacks([keras.callbacks.TensorBoard("curves", histogram_freq=2)], PATH, job_spec(), FACTS)
    assert (found.names, found.notes) == (("WeightHistograms",), ())
