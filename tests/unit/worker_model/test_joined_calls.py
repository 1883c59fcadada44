"""The feed and the function that finds ids in one call, against both alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import RECOMMENDER, WriteModule, columns, runner_of

pytestmark = pytest.mark.tensorflow

NOISY = (
    RECOMMENDER
    + """
def feed_batch(records, mode, metadata):
    checked = tf.debugging.assert_less(records["user"], tf.constant(5000, tf.int64), "too many users")
    with tf.control_dependencies([checked]):
        user = tf.identity(records["user"])
    noise = tf.random.normal(tf.shape(records["numbers"]))
    return {"user": user, "item": records["item"], "numbers": records["numbers"] + noise}, records["label"]
"""
)
FILTERED = (
    RECOMMENDER
    + """
del feed_batch

def feed(dataset, mode, metadata):
    def split(record):
        return {name: record[name] for name in ("user", "item", "numbers")}, record["label"]
    return dataset.filter(lambda record: record["user"] < 500).map(split)
"""
)


def feeders_of(write_module: WriteModule, body: str) -> tuple[ModelRunner, BatchFeeder, BatchFeeder]:
    """A model, its feed alone, and its feed joined with the search for ids."""
    module = write_module(body)
    runner, _ = runner_of(module, columns())
    alone, joined = BatchFeeder(module, "train", None), BatchFeeder(module, "train", None)
    for feeder in (alone, joined):
        feeder.feed(columns(), 1)
    find_ids = runner.step.traced("train_ids", runner.example.spec)
    assert find_ids is not None
    joined.join(find_ids)
    return runner, alone, joined


@pytest.mark.parametrize("body", [RECOMMENDER, NOISY, FILTERED])
def test_a_joined_call_gives_what_both_give_alone(write_module: WriteModule, body: str) -> None:
    import tensorflow as tf

    runner, alone, joined = feeders_of(write_module, body)
    for seed in range(1, 5):
        expected, found = (feeder.feed(columns(10 * seed, seed), seed) for feeder in (alone, joined))
        assert expected is not None
        assert found is not None
        assert expected.ids is None
        assert found.ids is not None
        for one, other in (
            ((found.features, found.labels), (expected.features, expected.labels)),
            (runner.ids(found), runner.ids(expected)),
        ):
            tf.nest.map_structure(np.testing.assert_array_equal, one, other)
        assert found.count == expected.count


def test_a_batch_of_which_nothing_passes_the_filter_has_no_ids(write_module: WriteModule) -> None:
    _, alone, joined = feeders_of(write_module, FILTERED)
    raw = columns()
    raw["user"][:] = 700
    assert alone.feed(raw, 1) is joined.feed(raw, 1) is None


def test_an_error_says_which_of_both_it_belongs_to(write_module: WriteModule) -> None:
    runner, _, joined = feeders_of(write_module, NOISY)
    raw = columns()
    raw["user"][0] = 6000
    with pytest.raises(UserCodeError, match=r"^feed_batch\(\) of model.py raised .*too many users"):
        joined.feed(raw, 1)
    raw["user"][0] = 1000
    batch: Any = joined.feed(raw, 1)
    with pytest.raises(UserError, match="id 1000 is outside embedding user_table"):
        runner.ids(batch)
