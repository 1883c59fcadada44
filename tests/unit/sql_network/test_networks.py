"""The networks of statements: what they make of each kind of column, and of NULL and unseen values."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tests.unit.sql.statements_for_tests import call, clause, prepare, statement

from elasticdl.sql.columns.features import PACKED, Feature, Features, Input, Label, Node
from elasticdl.sql.network.catalogue import NETWORKS
from elasticdl.sql.network.definition import Definition
from elasticdl.sql.network.encoding import Encoder
from elasticdl.sql.network.importance import Model

pytestmark = pytest.mark.tensorflow

N = 40
TABLE = pa.table(
    {
        "age": pa.array([None if number == 3 else number % 10 for number in range(N)], pa.int64()),
        "city": [None if number == 5 else f"c{number % 12}" for number in range(N)],
        "on": pa.array([18_000 + number for number in range(N)], pa.int32()).cast(pa.date32()),
        "tags": [["a", "b", "c"][: number % 4] for number in range(N)],
        "vector": [[1.0, float(number)] for number in range(N)],
        "code": [number % 6 for number in range(N)],
        "y": [float(number) for number in range(N)],
        "kv": ["0:1.5 2:2", "1:0.5"] * (N // 2),
        "kind": [("x", "y", "z")[number % 3] for number in range(N)],
        "good": [number % 2 == 0 for number in range(N)],
    }
)
KV = call("SPARSE", "kv", 3, delim=" ", delim_kv=":")
COLUMNS = (
    clause(
        call("EMBEDDING", call("CROSS", "city", call("BUCKET", "age", (5,)), 50), 4),
        call("EMBEDDING", call("CONCAT", call("CATEGORY_HASH", "city", 9), call("CATEGORY_ID", "code", 6)), 3),
        call("EMBEDDING", call("WEIGHTED_CATEGORY", call("CATEGORY_ID", KV, 3)), 2, combiner="mean"),
        call("WEIGHTED_CATEGORY", call("CATEGORY_HASH", KV, 5)),
    ),
)


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sql_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(features: Features, folder: Path) -> dict[str, Any]:
    """The prepared rows as the default feed gives them."""
    table, found = pq.read_table(folder), {}
    for one in features.inputs:
        values = table.column(one.name).to_pylist()
        match one.kind:
            case "texts":
                found[one.name] = tf.ragged.constant(values, dtype=tf.string).to_tensor()
            case "text":
                found[one.name] = tf.constant(values, shape=(len(values), 1))
            case "vector":
                found[one.name] = tf.constant(values, tf.float32)
            case "id":
                found[one.name] = tf.constant(values, tf.int64, shape=(len(values), 1))
            case _:
                numbers = [math.nan if value is None else value for value in values]
                found[one.name] = tf.constant(numbers, tf.float64, shape=(len(values), 1))
    return found


@pytest.mark.parametrize("network", list(NETWORKS))
def test_each_network_takes_all_kinds_of_columns_and_can_be_saved(tmp_path: Path, network: str) -> None:
    label = "y" if network.endswith("Regressor") else "kind"
    prepared = prepare(tmp_path, TABLE, statement(label, model=network, columns=COLUMNS))
    module = loaded(prepared.model_def)
    features = Features.of_json(prepared.features.read_text())
    model, rows = module.custom_model(), tensors(features, prepared.training_data)
    found = model.predict(rows, verbose=0)
    assert found.shape == (pq.read_table(prepared.training_data).num_rows, 3 if label == "kind" else 1)
    assert np.isfinite(found).all()
    if label == "kind":
        assert found.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert np.array_equal(again.predict(rows, verbose=0), found)


def test_numbers_are_learned_in_their_own_units(tmp_path: Path) -> None:
    table = TABLE.set_column(6, "y", pa.array([1e6 + 1e5 * (number % 10) for number in range(N)]))
    prepared = prepare(tmp_path, table, statement("y", select="SELECT age, y FROM things", validation__split=0))
    module = loaded(prepared.model_def)
    rows = tensors(Features.of_json(prepared.features.read_text()), prepared.training_data)
    labels = pq.read_table(prepared.training_data).column("y").to_numpy()[:, np.newaxis]
    keras.utils.set_random_seed(1)
    model = module.custom_model()
    model.compile("adam", loss=module.loss)
    untrained = model(rows)
    assert np.abs(untrained - labels).max() < 10 * labels.std()
    assert float(np.mean(module.loss(labels, labels.mean()))) == pytest.approx(1.0, rel=1e-3)
    metric = module.eval_metrics_fn()["r2"]
    metric.update_state(labels, labels)
    assert float(metric.result()) == pytest.approx(1.0)


def encoded(node: Node, kind: Any, value: Any, **facts: Any) -> list[list[float]]:
    """What a network gets of one feature."""
    one = Input(name="x", column="x", kind=kind, **facts)
    features = Features(
        task="regression",
        label=Label(name="y", column="y"),
        inputs=(one,),
        features=(Feature(node=node),),
        network="DNNRegressor",
    )
    encoder = Encoder(features)
    model = keras.Model(encoder.inputs, encoder.numbers(features.features))
    result: list[list[float]] = model({"x": tf.constant(value)}).numpy().tolist()
    return result


@pytest.mark.parametrize("columns", [("a", "b", "c"), ("c", "a")])
def test_packed_numbers_are_encoded_as_others(columns: tuple[str, ...]) -> None:
    names, values = ("a", "b", "c"), np.array([[3.0, np.nan, 5.0], [1.0, 2.0, np.nan]], np.float32)
    scales = {"shift": 1.0, "scale": 2.0, "missing": True}
    features = Features(
        task="regression",
        label=Label(name="y", column="y"),
        inputs=tuple(Input(name=name, column=name, kind="number") for name in names),
        features=tuple(Feature(node=Node(operation="number", input=name, values=scales)) for name in columns),
        network="DNNRegressor",
    )
    packed = replace(features, packed=names)
    plain, vector = (Encoder(each) for each in (features, packed))
    of_plain = keras.Model(plain.inputs, plain.numbers(features.features))
    of_packed = keras.Model(vector.inputs, vector.numbers(packed.features))
    assert list(vector.inputs) == [PACKED]
    expected = of_plain({name: values[:, [place]] for place, name in enumerate(names)})
    assert np.array_equal(of_packed({PACKED: values}), expected)
    assert Features.of_json(packed.as_json()) == packed


def shown(node: Node) -> Node:
    return Node(operation="indicator", of=(node,))


def test_null_and_unseen_values_have_their_places() -> None:
    words = shown(Node(operation="vocabulary", input="x", values={"words": ["a", "b"]}))
    found = encoded(words, "text", [[""], ["new"], ["a"], ["b"]])
    assert [row.index(1.0) for row in found] == [0, 1, 2, 3]
    ids = shown(Node(operation="identity", input="x", values={"size": 3}))
    found = encoded(ids, "id", np.array([[-1], [-2], [3], [0], [2]]), size=3)
    assert [row.index(1.0) for row in found] == [0, 1, 1, 2, 4]
    buckets = shown(Node(operation="bucket", input="x", values={"boundaries": [1.0, 5.0]}))
    found = encoded(buckets, "number", np.array([[np.nan], [0.0], [1.0], [4.9], [5.0]]))
    assert [row.index(1.0) for row in found] == [0, 1, 2, 2, 3]
    hashed = shown(Node(operation="hash", input="x", values={"buckets": 4}))
    assert [row.index(1.0) > 0 for row in encoded(hashed, "text", [[""], ["a"], ["zz"]])] == [False, True, True]


def test_lists_count_their_values_and_not_their_padding() -> None:
    words = shown(Node(operation="vocabulary", input="x", values={"words": ["a", "b"]}))
    assert encoded(words, "texts", [["a", "b"], ["new", ""], ["", ""]]) == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    ids = Node(operation="identity", input="x", values={"size": 3})
    assert encoded(shown(ids), "ids", np.array([[1, 3], [-1, 0]]), size=3) == [[0, 1, 0, 1], [1, 0, 0, 0]]
    vectors = encoded(
        Node(operation="embedding", of=(ids,), values={"dimension": 2, "combiner": "mean"}),
        "ids",
        np.array([[1, 0], [1, 1], [0, 0]]),
        size=3,
    )
    assert vectors[0] == pytest.approx(vectors[1])
    assert vectors[2] == [0.0, 0.0]


def test_weights_count_for_the_places_of_their_ids() -> None:
    for inner, width in (
        (Node(operation="identity", values={"size": 2}), 4),
        (Node(operation="hash", values={"buckets": 1}), 2),
    ):
        node = Node(operation="weighted_indicator", input="x", of=(inner,))
        found = encoded(node, "vector", np.array([[0.5, 2.0, 4.0], [0.0, 0.0, 0.0]], np.float32), size=3)
        assert [len(row) for row in found] == [width, width]
        assert found[1] == [0.0] * width
        assert found[0] == ([0.0, 4.0, 0.5, 2.0] if width == 4 else [0.0, 6.5])
    for combiner, length in (("sum", 3.0), ("mean", 1.0), ("sqrtn", 1.0)):
        values = {"dimension": 2, "combiner": combiner}
        inner = Node(operation="identity", values={"size": 2})
        node = Node(operation="weighted_embedding", input="x", of=(inner,), values=values)
        keras.utils.set_random_seed(3)
        once, thrice, none = encoded(node, "vector", np.array([[1, 0], [3, 0], [0, 0]], np.float32), size=2)
        assert thrice == pytest.approx([length * each for each in once])
        assert none == [0.0, 0.0]


def test_a_missing_number_is_the_mean_and_marked() -> None:
    node = Node(operation="number", input="x", values={"shift": 10.0, "scale": 2.0, "missing": True})
    assert encoded(node, "number", np.array([[12.0], [np.nan]])) == [[1.0, 0.0], [0.0, 1.0]]
    large = Node(operation="number", input="x", values={"shift": 1e9, "scale": 2.0})
    assert encoded(large, "number", np.array([[1e9 + 2]])) == [[1.0]]


def test_days_have_a_trend_and_a_place_in_the_year_and_the_week() -> None:
    node = Node(operation="day", input="x", values={"shift": 18_000.0, "scale": 100.0, "missing": True})
    (first, missing) = encoded(node, "day", np.array([[18_100.0], [np.nan]]))
    assert first[0] == pytest.approx(1.0)
    assert len(first) == 6
    assert missing == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_network_of_a_file_gets_the_features_and_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import keras\n\n\ndef tower(units, width=3):\n"
        "    return keras.Sequential([keras.layers.Dense(width, name='tower'), keras.layers.Dense(units)])\n"
    )
    named = statement("kind", model=f"{tmp_path}/nets.py:tower", model__width=5)
    prepared = prepare(tmp_path, TABLE, named)
    text = Path(prepared.model_def).read_text()
    assert "from nets import tower" in text
    namespace: dict[str, Any] = {}
    exec((tmp_path / "work" / "nets.py").read_text(), namespace)
    features = Features.of_json(prepared.features.read_text())

    def tower(units: int, width: int) -> Any:
        return lambda numbers: namespace["tower"](units, width)(numbers)

    model = Definition(features.as_json(), tower).custom_model()
    assert model.output_shape == (None, 3)


def test_a_packed_column_changes_alone_when_it_is_explained() -> None:
    names, numbers = ("a", "b"), np.arange(6, dtype=np.float32).reshape(3, 2)
    inputs = (
        *(Input(name=name, column=name, kind="number") for name in names),
        Input(name="t", column="t", kind="text"),
    )
    features = Features(
        task="regression", label=Label(name="y", column="y"), inputs=inputs, features=(), network="", packed=names
    )
    model = Model(None, features, {PACKED: numbers, "t": np.array([["x"], ["y"], ["z"]], object)})
    found = model.exchanged(model.values, "b", np.array([2, 0, 1]))
    assert found[PACKED].tolist() == [[0.0, 5.0], [2.0, 1.0], [4.0, 3.0]]
    assert numbers.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert model.exchanged(model.values, "t", np.array([2, 0, 1]))["t"].tolist() == [["z"], ["x"], ["y"]]
