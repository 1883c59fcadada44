"""Numbers of layers in the names of a SavedModel's variables."""

from __future__ import annotations

import pytest

from elasticdl.worker.model.initial.layer_numbers import renumbered_names

CLASSES = {"dense", "embedding", "sequential"}


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (["dense_2/kernel", "dense_4/kernel"], ["dense/kernel", "dense_2/kernel"], ["dense/kernel", "dense_2/kernel"]),
        (["dense/kernel", "dense_1/kernel"], ["dense/kernel"], ["dense/kernel", "dense_1/kernel"]),
        (["dense_1/kernel"], ["dense/kernel", "dense_1/kernel"], ["dense_1#file/kernel"]),
        (["dense_1/kernel"], ["dense_1/kernel", "dense_5/kernel"], ["dense_1/kernel"]),
        (["top_1/kernel"], ["top/kernel"], ["top_1/kernel"]),
        (["sequential_3/dense_1/kernel"], ["sequential/dense/kernel"], ["sequential/dense/kernel"]),
        (
            ["embedding_1/embedding_1_rows/embeddings"],
            ["embedding/embedding_rows/embeddings"],
            ["embedding/embedding_rows/embeddings"],
        ),
        (["dense"], ["dense_1/kernel"], ["dense"]),
    ],
)
def test_numbers_are_shifted_where_it_is_clear_which_layer_is_which(
    found: list[str], wanted: list[str], expected: list[str]
) -> None:
    assert renumbered_names(found, wanted, CLASSES) == dict(zip(found, expected, strict=True))
