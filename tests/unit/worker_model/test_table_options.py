"""``min_count`` and ``expire_after`` of ``elasticdl.layers.Embedding``."""

from __future__ import annotations

import datetime
from typing import Any

import keras
import numpy as np
import pytest

from elasticdl.layers import Embedding
from elasticdl.layers.embedding import plain_embedding
from elasticdl.shared.model.signature import ModelSignature

from .conftest import WriteModule, columns, runner_of
from .test_embeddings import HEAD

pytestmark = pytest.mark.tensorflow


def optional(arguments: str) -> str:
    return HEAD + (
        f"\ndef custom_model():\n    return model_of(elasticdl.layers.Embedding(4, 50, name='t', {arguments}))\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", (1, 0)),
        ("min_count=1", (1, 0)),
        ("min_count=3", (3, 0)),
        ("expire_after=1", (1, 1)),
        ("min_count=2, expire_after=9", (2, 9)),
        ("min_count=2, expire_after=9, trainable=False", (1, 0)),
    ],
)
def test_options_of_a_table_are_in_the_signature(
    write_module: WriteModule, arguments: str, expected: tuple[int, int]
) -> None:
    runner, _ = runner_of(write_module(optional(arguments)), columns())
    (table,) = runner.tables
    assert (table.min_count, table.expire_after) == expected
    assert ModelSignature.from_json(runner.signature().to_json()) == runner.signature()


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, True])
@pytest.mark.parametrize("name", ["min_count", "expire_after"])
def test_an_option_that_is_no_number_of_updates_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name}={value}; expected a number of updates of the model from 1 to"):
        Embedding(4, 50, **{name: value})


@pytest.mark.parametrize("value", ["7d", datetime.timedelta(days=7)])
def test_expiry_by_time_is_refused_with_the_reason(value: Any) -> None:
    with pytest.raises(ValueError, match="Time can't be used: a batch that is trained again"):
        Embedding(4, 50, expire_after=value)


def test_a_layer_keeps_its_options_and_is_plain_outside_of_a_job() -> None:
    layer = Embedding(4, 50, min_count=2, expire_after=9, embeddings_initializer="ones")
    copied = Embedding.from_config(layer.get_config())
    assert (copied.min_count, copied.expire_after) == (2, 9)
    assert np.array_equal(layer(np.array([[1, 2]])), np.ones((1, 2, 4), np.float32))
    plain = plain_embedding(4, 50, min_count=2, expire_after=9)
    assert type(plain) is keras.layers.Embedding, "an exported table needs no such options"
    assert not {"min_count", "expire_after"} & Embedding(4, 50).get_config().keys()
