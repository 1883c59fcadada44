"""Equal models have equal fingerprints; whatever the ps does not serve and differs is named."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
from tests.unit.worker_model.conftest import RECOMMENDER, WriteModule, columns, fed

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.fingerprint.fingerprint import Fingerprint, check_made_again, fingerprint
from elasticdl.worker.model.fingerprint.graphs import remember_tables
from elasticdl.worker.model.fingerprint.values import describe
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule

pytestmark = pytest.mark.tensorflow

CHANCE = "import os, time\nfrom numpy.random import default_rng\n"
"""Unseeded: another process draws other numbers."""

VOCABULARY = """
words = default_rng().permutation([f"w{n}" for n in range(100)]).tolist()

def custom_model():
    word = keras.Input((), dtype="string", name="word")
    ids = layers.StringLookup(vocabulary=words, name="words")(word)
    return keras.Model({"word": word}, layers.Dense(1)(layers.Embedding(101, 4)(ids)))

def feed_batch(records, mode, metadata):
    return {"word": tf.strings.as_string(records["user"])}, records["label"]
"""
ADAPTED = """
numbers = default_rng().normal(5, 2, (1000, 5)).astype("float32")

def custom_model():
    scaled = layers.Normalization(name="scaled")
    scaled.adapt(numbers)
    return keras.Sequential([keras.Input((5,), name="numbers"), scaled, layers.Dense(1)])

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
BOUNDARIES = ADAPTED.replace("layers.Normalization(", "layers.Discretization(num_bins=8, ")
TEXT = """
texts = [" ".join(f"w{n}" for n in default_rng().integers(0, 50, 20)) for _ in range(20)]

def custom_model():
    vectorized = layers.TextVectorization(output_sequence_length=4, max_tokens=20, name="tokens")
    vectorized.adapt(texts)
    text = keras.Input((), dtype="string", name="text")
    return keras.Model({"text": text}, layers.Dense(1)(layers.Flatten()(layers.Embedding(60, 4)(vectorized(text)))))

def feed_batch(records, mode, metadata):
    return {"text": tf.strings.as_string(records["user"])}, records["label"]
"""
LAMBDA = """
order = default_rng().integers(5, size=50)

def custom_model():
    numbers = keras.Input((5,), name="numbers")
    shuffled = layers.Lambda(lambda x: tf.gather(x, order, axis=1), name="shuffled")(numbers)
    return keras.Model(numbers, {"one": layers.Dense(1, name="one")(shuffled), "two": layers.Dense(1)(shuffled)})

def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions["one"] + predictions["two"])

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
SUBCLASS = """
class Noisy(keras.Model):
    def __init__(self):
        super().__init__()
        self.offsets = default_rng().normal(size=5).astype("float32")
        self.out = layers.Dense(1)

    def call(self, x):
        return self.out(x + self.offsets)

def custom_model():
    return Noisy()

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
UNSERVED = """
class Counting(layers.Layer):
    def build(self, shape):
        start = int(default_rng().integers(1 << 30))
        self.count = self.add_weight(shape=(), dtype="int64", trainable=False, name="count",
                                     initializer=keras.initializers.Constant(start))

    def call(self, x):
        return x + tf.cast(self.count, "float32")

def custom_model():
    return keras.Sequential([keras.Input((5,)), Counting(name="counting"), layers.Dense(1)])

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
LOSS = """
weight = float(default_rng().random())

def custom_model():
    return keras.Sequential([keras.Input((5,)), layers.Dense(1)])

def loss(labels, predictions):
    return keras.losses.binary_crossentropy(labels, predictions) * weight

def feed_batch(records, mode, metadata):
    return records["numbers"], records["label"]
"""
FEED_TABLE = """
keys = tf.constant(np.arange(1000, dtype="int64"))
table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(keys, tf.constant(default_rng().permutation(1000))), -1)

def custom_model():
    return keras.Sequential([keras.Input((1,)), layers.Dense(1)])

def feed_batch(records, mode, metadata):
    return tf.cast(table.lookup(records["user"]), tf.float32)[:, None], records["label"]
"""
FEED_COLUMNS = """
names = default_rng().permutation([f"c{n}" for n in range(30)]).tolist()

def custom_model():
    return keras.Sequential([keras.Input((30,)), layers.Dense(1)])

def feed_batch(records, mode, metadata):
    columns = dict(zip([f"c{n}" for n in range(30)], tf.unstack(tf.tile(records["numbers"], (1, 6)), 30, axis=1)))
    return tf.stack([columns[name] for name in names], axis=1), records["label"]
"""
FEED_PYTHON = """
scale = default_rng().random(5).astype("float32")

def scaled(numbers):
    return numbers * scale

def custom_model():
    return keras.Sequential([keras.Input((5,)), layers.Dense(1)])

def feed_batch(records, mode, metadata):
    numbers = tf.ensure_shape(tf.numpy_function(scaled, [records["numbers"]], tf.float32), (None, 5))
    return numbers, records["label"]
"""
remember_tables()
DIFFERENT: dict[str, tuple[str, str]] = {
    "vocabulary": (VOCABULARY, "the vocabulary of layer 'words': ['[UNK]', 'w"),
    "adapted": (ADAPTED, "attribute 'mean' of layer 'scaled"),
    "boundaries": (BOUNDARIES, "attribute 'bin_boundaries' of layer 'sequential/scaled"),
    "text": (TEXT, "the vocabulary of layer 'tokens"),
    "lambda": (LAMBDA, "a constant in the model or loss, functional"),
    "subclass": (SUBCLASS, "attribute 'offsets' of the model"),
    "unserved variable": (UNSERVED, "variable 'count' of layer 'sequential/counting"),
    "loss": (LOSS, "a constant in the model or loss"),
    "feed's table": (FEED_TABLE, "the table in the feed"),
    "feed's columns": (FEED_COLUMNS, "the operations in the feed"),
    "feed's Python": (FEED_PYTHON, "variable 'scale'"),
}


def made(module: UserModule, *, seed: int = 1, eager: bool = False) -> Fingerprint:
    """The fingerprint in a process of its own, as far as it depends on the model file."""
    feeder = BatchFeeder(module, "train", None, eager=eager)
    batch = feeder.feed(columns())
    assert batch is not None
    runner = ModelRunner(module, batch, RunnerSettings(seed=seed, swap_bytes_min=0, eager=eager))
    return Fingerprint.decode(fingerprint(runner, feeder).encode())


@pytest.mark.parametrize(("body", "named"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_differs_between_two_processes_is_named(write_module: WriteModule, body: str, named: str) -> None:
    one, other = (made(write_module(CHANCE + body)) for _ in range(2))
    assert any(difference.startswith(named) for difference in one.differences(other)), one.differences(other)
    with pytest.raises(UserError, match="sort a vocabulary") as raised:
        one.check(other, write_module(body.replace("default_rng()", "np.random.default_rng(1)")).path, "another model")
    assert "model.py: another model. It differs in " in str(raised.value)


@pytest.mark.parametrize(
    ("body", "eager"),
    [*((body, False) for body, _ in DIFFERENT.values()), (RECOMMENDER, False), (FEED_PYTHON, True), (SUBCLASS, True)],
    ids=[*DIFFERENT.keys(), "recommender", "eager feed", "eager subclass"],
)
def test_the_same_model_has_the_same_fingerprint(write_module: WriteModule, body: str, eager: bool) -> None:
    seeded = "import time\nSTART, PATH = time.time(), id(object())\n" + body.replace(
        "default_rng()", "np.random.default_rng(1)"
    )
    one, other = (made(write_module(textwrap.dedent(seeded)), eager=eager) for _ in range(2))
    assert one.differences(other) == []
    assert len(one.encode()) < 4000


def test_numbers_that_depend_on_chance_by_design_are_no_difference(write_module: WriteModule) -> None:
    """Dropout, augmentation, a generator, what is printed, the time, and how many threads a dataset uses."""
    body = """
    import os, time
    START = time.time()
    entropy = tf.random.Generator.from_non_deterministic_state()

    def custom_model():
        x = numbers = keras.Input((5,), name="numbers")
        return keras.Model(numbers, layers.Dense(1)(layers.Dropout(0.5)(layers.GaussianNoise(0.1)(x))))

    def feed(dataset, mode, metadata):
        def parse(record):
            tf.print("started", START, output_stream=sys.stderr)
            return record["numbers"] + entropy.normal((5,)) + tf.random.normal((5,)), record["label"]

        threads = int.from_bytes(os.urandom(1)) % 7 + 1
        return dataset.shuffle(8).map(parse, num_parallel_calls=threads)

    feed_batch = None
    """
    one, other = (made(write_module("import sys\n" + textwrap.dedent(body))) for _ in range(2))
    assert one.differences(other) == []


def test_a_model_that_differs_with_each_call_is_found_in_one_process(write_module: WriteModule) -> None:
    module = write_module(CHANCE + SUBCLASS)
    runner = ModelRunner(module, fed(module, columns()), RunnerSettings())
    with pytest.raises(
        UserError, match=r"a second call of custom_model\(\) returns another model.*attribute 'offsets' of the model"
    ):
        check_made_again(runner)
    module = write_module(RECOMMENDER)
    check_made_again(ModelRunner(module, fed(module, columns()), RunnerSettings(swap_bytes_min=0)))


def test_graphs_of_other_versions_are_not_compared(write_module: WriteModule) -> None:
    one, other = (made(write_module(CHANCE + LOSS)) for _ in range(2))
    assert one.differences(other)
    assert not one.differences(Fingerprint(entries=other.entries, versions="tensorflow 1"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b"], ["b", "a"]),
        (np.arange(5), np.arange(5)[::-1]),
        (np.linspace(0, 1, 50), np.linspace(0, 1, 50)[::-1]),
        (np.array([1, np.nan]), np.array([np.nan, 1])),
        (1.0, 1.001),
        (1, 1.0),
        (None, "None"),
        ([1, [2]], [[1], 2]),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        ({"a": 1}, {"a": 2}),
        ("1", 1),
    ],
)
def test_different_values(one: Any, other: Any) -> None:
    assert not describe(one).equals(describe(other))
    assert describe(one).equals(describe(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y"}, {"y", "x"}),
        (np.linspace(0, 1, 50), np.linspace(0, 1, 50) * (1 + 1e-7)),
        (np.float32(0.1), np.float32(0.1) + np.float32(1e-8)),
        (object(), object()),
        (np.array(["a", "b"]), np.array(["a", "b"], object)),
    ],
)
def test_equal_values(one: Any, other: Any) -> None:
    assert describe(one).equals(describe(other))
