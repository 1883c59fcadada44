"""Which tables are served, and why others are not."""

from __future__ import annotations

import resource
from pathlib import Path

import keras
import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import RowInitializer
from elasticdl.worker.model.build import look_at
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import RECOMMENDER, Tables, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow

HEAD = """
import elasticdl.layers

def feed_batch(records, mode, metadata):
    return {"item": records["item"]}, records["label"]

def model_of(make):
    item = keras.Input((3,), dtype="int64", name="item")
    return keras.Model({"item": item}, layers.Dense(1, activation="sigmoid")(layers.Flatten()(make(item))))
"""


def test_only_large_tables_are_served(write_module: WriteModule) -> None:
    runner, _ = runner_of(write_module(RECOMMENDER), columns(), swap_bytes_min=8000)
    assert [(table.name, table.input_dim, table.width) for table in runner.tables] == [("user_table", 1000, 4)]
    assert runner.describe()[:2] == [
        "embedding user_table: 1,000 x 4 (15.6 KiB) served by the ps",
        "embedding item_table stays dense: 800 bytes < 7.8 KiB",
    ]
    assert "item_table/embeddings" in [spec.name for spec in runner.signature().dense]


def test_a_huge_table_costs_no_memory(write_module: WriteModule) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings = RunnerSettings()
    runner, batch = runner_of(
        write_module(RECOMMENDER, users=10_000_000, width=64), columns(), swap_bytes_min=settings.swap_bytes_min
    )
    assert [table.input_dim for table in runner.tables] == [10_000_000]
    assert runner.ids(batch)["user_table"].shape == (16,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB; the table has 2.4 GiB.


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("'uniform'", RowInitializer(distribution="uniform", low=-0.05, high=0.05)),
        ("'zeros'", RowInitializer(distribution="zeros")),
        ("'ones'", RowInitializer(distribution="constant", low=1.0)),
        ("keras.initializers.Constant(0.5)", RowInitializer(distribution="constant", low=0.5)),
        ("keras.initializers.RandomNormal(1.0, 2.0)", RowInitializer(distribution="normal", low=1.0, high=2.0)),
        ("'glorot_uniform'", RowInitializer(distribution="uniform", low=-np.sqrt(6 / 54), high=np.sqrt(6 / 54))),
        ("'he_normal'", RowInitializer(distribution="truncated_normal", high=np.sqrt(2 / 50) / 0.87962566103423978)),
    ],
)
def test_initializers_become_distributions(write_module: WriteModule, argument: str, expected: RowInitializer) -> None:
    body = HEAD + (
        "\ndef custom_model():\n"
        f"    return model_of(layers.Embedding(50, 4, embeddings_initializer={argument}, name='t'))\n"
    )
    runner, _ = runner_of(write_module(body), columns())
    found = runner.tables[0].initializer
    assert found.distribution == expected.distribution
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


FROM_IDS = """
class FromIds(layers.Layer):
    def __init__(self, table, ids_of):
        super().__init__()
        self.table, self.ids_of = table, ids_of
        self.route, self.seeds = layers.Dense(3), keras.random.SeedGenerator(1)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")
        self.fixed = self.add_weight(shape=(), initializer="ones", trainable=False, name="fixed")
        self.route.build((None, 3))
        self.drop = layers.Dropout(0.5)
        self.table.build()

    def call(self, item, training=False):
        return self.table(self.ids_of(self, item, training))

    def compute_output_shape(self, shape):
        return (*shape, 4)

def dropped(layer, item, training):
    return ops.where(keras.random.uniform(ops.shape(item), seed=layer.seeds) < 0.5, 0, item)

def dropped_in_training(layer, item, training):
    return ops.where(keras.random.uniform(ops.shape(item)) < 0.5, 0, item) if training else item

def dropped_by_tensorflow(layer, item, training):
    return tf.where(tf.random.uniform(tf.shape(item)) < 0.5, tf.zeros_like(item), item)

GENERATOR = tf.random.Generator.from_seed(1)

def dropped_by_a_generator(layer, item, training):
    return tf.where(GENERATOR.uniform(tf.shape(item)) < 0.5, tf.zeros_like(item), item)

def dropped_by_numpy(layer, item, training):
    drop = lambda ids: np.where(np.random.uniform(size=ids.shape) < 0.5, 0, ids)
    return tf.ensure_shape(tf.numpy_function(drop, [item], tf.int64), (None, 3))

def dropped_in_a_loop(layer, item, training):
    drop = lambda n, ids: (n + 1, tf.where(tf.random.uniform(tf.shape(ids)) < 0.3, tf.zeros_like(ids), ids))
    return tf.while_loop(lambda n, ids: n < 2, drop, [tf.constant(0), item])[1]

def routed(layer, item, training):
    return ops.broadcast_to(ops.argmax(layer.route(ops.cast(item, "float32")), axis=1)[:, None], ops.shape(item))

def routed_in_prediction(layer, item, training):
    return item if training else routed(layer, item, training)

def counted(layer, item, training):
    layer.count.assign_add(1.0)
    return ops.cast(layer.count, "int64") % 50 + ops.zeros_like(item)

def as_many_as_drawn(layer, item, training):
    drawn = tf.where(tf.random.uniform([tf.size(item)]) < 0.5)
    return tf.zeros_like(item) + tf.cast(tf.shape(drawn)[0] % 50, item.dtype)
"""
STAY_DENSE = [
    ("layers.Embedding(50, 4, weights=np.ones((50, 4)), name='t')", "it has pretrained weights"),
    ("layers.Embedding(50, 4, embeddings_initializer='orthogonal', name='t')", "Orthogonal can't be"),
    ("tied(layers.Embedding(50, 4, name='t'))", "the model uses .embeddings"),
    ("set_weights(layers.Embedding(50, 4, name='t'))", "the model sets its weights"),
    ("chained(layers.Embedding(50, 4, name='t'))", "its ids depend on another served embedding"),
    ("sometimes(layers.Embedding(50, 4, name='t'))", "it is called inside a loop or a condition"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped_in_training)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped_by_tensorflow)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped_by_a_generator)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped_by_numpy)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), dropped_in_a_loop)", "its ids depend on random numbers"),
    ("FromIds(layers.Embedding(50, 4, name='t'), routed)", "its ids depend on weights that training changes"),
    ("FromIds(layers.Embedding(50, 4, name='t'), routed_in_prediction)", "its ids depend on weights that training"),
    ("FromIds(layers.Embedding(50, 4, name='t'), counted)", "its ids depend on weights that training changes"),
    ("FromIds(layers.Embedding(50, 4, name='t'), as_many_as_drawn)", "its ids depend on random numbers"),
    ("Rows(50, 4, name='t')", "Rows is a subclass of keras.layers.Embedding"),
]
TABLES = (
    HEAD
    + FROM_IDS
    + """
class Tied(layers.Layer):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, item):
        return ops.matmul(self.table(item), ops.transpose(self.table.embeddings))

def tied(table):
    return Tied(table)

def set_weights(table):
    table.build()
    table.set_weights([np.ones((50, 4))])
    return table

def chained(table):
    first = layers.Embedding(50, 1, name="first")
    return lambda item: table(ops.cast(ops.abs(first(item)[:, :, 0]) * 10, "int64"))

class Sometimes(layers.Layer):
    def __init__(self, table):
        super().__init__()
        self.table = table
        self.table.build()

    def call(self, item):
        return tf.cond(tf.size(item) > 3, lambda: self.table(item), lambda: tf.zeros([tf.shape(item)[0], 3, 4]))

    def compute_output_shape(self, shape):
        return (*shape, 4)

def sometimes(table):
    return Sometimes(table)

class Rows(layers.Embedding):
    pass
"""
)
LAZY = "sometimes"  # An eager condition is no obstacle.


def made_by(make: str) -> str:
    """The model that has one layer."""
    return f"\ndef custom_model():\n    return model_of({make})\n"


@pytest.mark.parametrize(
    ("make", "reason", "eager"),
    [(*case, eager) for case in STAY_DENSE for eager in (False, True) if not (eager and case[0].startswith(LAZY))],
)
def test_a_table_that_cannot_be_served_stays_dense_with_the_reason(
    write_module: WriteModule, make: str, reason: str, eager: bool
) -> None:
    runner, batch = runner_of(write_module(TABLES + made_by(make)), columns(), eager=eager)
    assert "t" not in [table.name for table in runner.tables]
    (line,) = [line for line in runner.describe() if line.startswith("embedding t ")]
    assert line.startswith("embedding t stays dense: ")
    assert reason in line
    assert runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1).finite


@pytest.mark.parametrize(("make", "reason"), [case for case in STAY_DENSE if "the model" in case[1]])
def test_a_model_that_uses_its_table_can_be_looked_at_before_there_is_a_batch(
    write_module: WriteModule, make: str, reason: str
) -> None:
    module = write_module(TABLES + made_by(make))
    assert look_at(module, lambda model: model.output_shape, seed=1, swap_bytes_min=0)[0] is None
    assert "model" in reason


def test_weights_that_the_model_file_sets_are_kept(write_module: WriteModule) -> None:
    body = TABLES + made_by("set_weights(layers.Embedding(50, 4, name='t'))")
    runner, _ = runner_of(write_module(body), columns())
    (place,) = [n for n, spec in enumerate(runner.signature().dense) if spec.name == "t/embeddings"]
    assert runner.dense.split(runner.initial_dense())[place].numpy().tolist() == np.ones((50, 4)).tolist()


def test_weights_of_the_whole_model_may_be_set(write_module: WriteModule) -> None:
    body = (
        HEAD
        + """
def custom_model():
    model = model_of(layers.Embedding(50, 4, name="t"))
    model.set_weights([np.full((50, 4), 3.0), np.ones((12, 1)), np.zeros(1)])
    return model
"""
    )
    runner, _ = runner_of(write_module(body), columns())
    assert runner.tables == ()
    assert sorted(set(runner.initial_dense().tolist())) == [0, 1, 3]
    assert "embedding t stays dense: the model sets its weights" in runner.describe()


@pytest.mark.parametrize("whole", ["model", "model.layers[1]"])
def test_weights_of_a_layer_that_is_always_served_cannot_be_set(write_module: WriteModule, whole: str) -> None:
    body = (
        HEAD
        + f"""
def custom_model():
    model = model_of(elasticdl.layers.Embedding(4, 50, name="t"))
    {whole}.set_weights([np.full((50, 4), 3.0)])
    return model
"""
    )
    with pytest.raises(UserError, match="can't be served: the model sets its weights"):
        runner_of(write_module(body), columns())


def test_positions_from_the_shape_of_rows_do_not_count_as_depending(write_module: WriteModule) -> None:
    body = (
        HEAD
        + """
class Tokens(layers.Layer):
    def __init__(self):
        super().__init__()
        self.token = layers.Embedding(50, 4, name="token")
        self.position = layers.Embedding(50, 4, name="position")

    def call(self, item):
        rows = self.token(item)
        return rows + self.position(tf.range(tf.shape(rows)[1]))

def custom_model():
    return model_of(Tokens())
"""
    )
    runner, batch = runner_of(write_module(body), columns())
    assert [table.name.rpartition("/")[2] for table in runner.tables] == ["token", "position"]
    assert runner.ids(batch)[runner.tables[1].name].tolist() == [0, 1, 2]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    "ids",
    [
        "(item + ops.cast(layer.fixed, item.dtype)) % 50",
        "tf.random.stateless_uniform(tf.shape(item), [1, 2], 0, 50, tf.int64)",
        "ops.where(keras.random.uniform((3,), seed=4) < 0.5, 0, item)",
        "tf.range(tf.shape(layer.drop(ops.cast(item, 'float32')))[1])[None] + tf.zeros_like(item, 'int32')",
        "tf.ensure_shape(tf.numpy_function(lambda ids: ids[:, ::-1], [item], tf.int64), (None, 3))",
    ],
)
def test_ids_that_every_call_computes_alike_are_served(write_module: WriteModule, ids: str, eager: bool) -> None:
    body = (
        HEAD
        + FROM_IDS
        + f"""
def custom_model():
    return model_of(FromIds(layers.Embedding(50, 4, name="t"), lambda layer, item, training: {ids}))
"""
    )
    runner, batch = runner_of(write_module(body), columns(), eager=eager)
    assert [table.name.rpartition("/")[2] for table in runner.tables] == ["t"]
    assert runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1).finite


def test_a_layer_that_is_always_served_is_refused_if_its_ids_are_random(write_module: WriteModule) -> None:
    body = (
        HEAD
        + FROM_IDS
        + """
def custom_model():
    return model_of(FromIds(elasticdl.layers.Embedding(4, 50, name="t"), dropped))
"""
    )
    with pytest.raises(UserError, match="can't be served: its ids depend on random numbers"):
        runner_of(write_module(body), columns())


def test_ids_come_through_string_lookups_and_hashing(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        word = keras.Input((2,), dtype="string", name="word")
        known = layers.StringLookup(vocabulary=["a", "b"])(word)
        hashed = layers.Hashing(10)(word)
        rows = [layers.Embedding(3, 4, name="known")(known), layers.Embedding(10, 4, name="hashed")(hashed)]
        out = layers.Dense(1, activation="sigmoid")(layers.Flatten()(layers.Concatenate()(rows)))
        return keras.Model({"word": word}, out)

    def feed_batch(records, mode, metadata):
        return {"word": records["word"]}, records["label"]
    """
    words = np.array([["a", "b"], ["x", "a"]], dtype=object)
    runner, batch = runner_of(write_module(body), {"word": words, "label": np.ones((2, 1), np.float32)})
    assert runner.ids(batch)["known"].tolist() == [1, 2, 0, 1]
    assert runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1).finite


def test_sequences_of_any_length_share_one_trace(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        tokens = keras.Input((None,), dtype="int64", name="tokens")
        rows = layers.Embedding(50, 4, mask_zero=True, name="tokens_table")(tokens)
        return keras.Model(tokens, layers.Dense(1, activation="sigmoid")(layers.LSTM(3)(rows)))

    def feed_batch(records, mode, metadata):
        tokens = tf.strings.to_number(tf.strings.split(records), tf.int64).to_tensor()
        return tokens, tf.ones([tf.shape(tokens)[0], 1])
    """
    module = write_module(body)
    feeder = BatchFeeder(module, "train", None)
    runner = None
    for lines in ([b"1 2 3", b"4"], [b"5 6 7 8 9"]):
        batch = feeder.feed(lines)
        assert batch is not None
        runner = runner or ModelRunner(module, batch, RunnerSettings(swap_bytes_min=0))
        assert runner.train(batch, runner.initial_dense(), Tables(runner).pull(batch), step_seed=1).finite
    assert runner is not None
    assert runner.step.traces["train"] == 1


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_combiners_leave_padding_out(write_module: WriteModule, combiner: str) -> None:
    body = (
        HEAD
        + f"""
def custom_model():
    item = keras.Input((3,), dtype="int64", name="item")
    rows = elasticdl.layers.Embedding(4, 50, combiner="{combiner}", mask_zero=True, name="t")(item)
    return keras.Model({{"item": item}}, rows)

def loss(labels, predictions):
    return ops.sum(predictions, axis=1)
"""
    )
    raw = columns(3)
    raw["item"] = np.array([[1, 2, 0], [3, 0, 0], [0, 0, 0]])
    runner, batch = runner_of(write_module(body), raw)
    tables = Tables(runner)
    got = runner.predict(batch, runner.initial_dense(), tables.pull(batch, training=False))
    table = tables.full["t"]
    divisor = {"sum": 1.0, "mean": 2.0, "sqrtn": np.sqrt(2.0)}[combiner]
    np.testing.assert_allclose(got, [(table[1] + table[2]) / divisor, table[3], np.zeros(4)], atol=1e-6)


def test_the_layer_works_outside_a_job() -> None:
    import tensorflow as tf

    from elasticdl.layers import Embedding

    layer = Embedding(2, 10, combiner="sum", embeddings_initializer="ones")
    assert layer(tf.constant([[1, 2, 3]])).numpy().tolist() == [[3.0, 3.0]]
    ragged = tf.ragged.constant([[1, 2], []], dtype=tf.int64)
    assert layer(ragged).numpy().tolist() == [[2.0, 2.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="no input_dim"):
        Embedding(2)(tf.constant([[1]]))


def test_an_open_ended_layer_that_cannot_be_served_is_refused(write_module: WriteModule) -> None:
    body = HEAD + (
        "\ndef custom_model():\n"
        "    return model_of(elasticdl.layers.Embedding(4, embeddings_initializer='orthogonal', name='t'))\n"
    )
    with pytest.raises(UserError, match="can't be served: its initializer"):
        runner_of(write_module(body), columns())


def test_tables_that_are_given_the_same_ids_share_one_array(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        item = keras.Input((3,), dtype="int64", name="item")
        wide = layers.Embedding(50, 1, name="wide")(item)
        deep = layers.Embedding(50, 4, name="deep")
        rows = layers.Concatenate(axis=-1)([wide, deep(item)])
        turned = layers.Embedding(50, 2, name="turned")(ops.flip(item, axis=1))
        repeated = layers.Embedding(50, 2, name="repeated")
        twice = layers.Concatenate(axis=-1)([repeated(item), repeated(ops.flip(item, axis=1)), turned, rows])
        return keras.Model({"item": item}, layers.Dense(1, activation="sigmoid")(layers.Flatten()(twice)))

    def feed_batch(records, mode, metadata):
        return {"item": records["item"]}, records["label"]
    """
    raw = columns()
    runner, batch = runner_of(write_module(body), raw)
    ids = runner.ids(batch)
    item, turned = raw["item"].reshape(-1), raw["item"][:, ::-1].reshape(-1)
    expected = {"wide": item, "deep": item, "turned": turned, "repeated": np.concatenate([item, turned])}
    assert {table: own.tolist() for table, own in ids.items()} == {t: own.tolist() for t, own in expected.items()}
    assert ids["wide"] is ids["deep"]
    assert ids["wide"] is not ids["turned"]


def test_a_table_that_is_loaded_from_a_file_stays_dense(write_module: WriteModule, tmp_path: Path) -> None:
    ids = keras.Input((1,), dtype="int64", name="ids")
    saved = keras.Model({"ids": ids}, keras.layers.Flatten()(keras.layers.Embedding(10, 1)(ids)))
    saved.layers[1].set_weights([np.arange(10.0)[:, np.newaxis]])
    saved.save(tmp_path / "saved.keras")
    body = f"def custom_model():\n    return keras.saving.load_model({str(tmp_path / 'saved.keras')!r})\n"
    raw = {"ids": np.zeros((4, 1), np.int64), "label": np.zeros((4, 1), np.float32)}
    runner, _ = runner_of(write_module(body), raw)
    assert runner.tables == ()
    assert runner.initial_dense().tolist() == [*range(10)]
    assert "embedding embedding stays dense" in " ".join(runner.describe())
