"""Deduplication against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.shared.model.dedup import sum_parts, sum_rows, unique_by_table, unique_inverse

ids_lists = st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), max_size=200)


@settings(deadline=None)
@given(ids_lists)
def test_unique_in_the_order_of_first_occurrence(ids: list[int]) -> None:
    unique, inverse = unique_inverse(np.array(ids, np.int64))
    assert unique.tolist() == list(dict.fromkeys(ids))
    assert inverse.dtype == np.int32
    assert unique[inverse].tolist() == ids


def test_strided_ids_do_not_collide_into_a_crawl() -> None:
    ids = np.arange(100_000) << 32
    unique, inverse = unique_inverse(ids)
    assert np.array_equal(unique, ids)
    assert np.array_equal(inverse, np.arange(100_000))


def test_sums_rows_of_equal_ids() -> None:
    generator = np.random.default_rng(3)
    ids = generator.integers(0, 300, 2000)
    gradients = generator.normal(size=(2000, 5)).astype(np.float32)
    unique, inverse = unique_inverse(ids)
    expected = np.zeros((unique.size, 5), np.float32)
    np.add.at(expected, inverse, gradients)
    np.testing.assert_array_equal(sum_rows(inverse, gradients, unique.size), expected)


def test_magnitudes_are_those_of_rows_with_several_parts() -> None:
    generator = np.random.default_rng(3)
    ids = generator.integers(0, 300, 600)
    parts = generator.normal(size=(600, 5)).astype(np.float32)
    unique, inverse = unique_inverse(ids)
    several = np.flatnonzero(np.bincount(inverse) > 1)
    assert 0 < several.size < unique.size
    for power in (1, 2):
        expected = np.zeros((unique.size, 5), np.float32)
        np.add.at(expected, inverse, np.abs(parts) ** power)
        sums, repeated, magnitudes = sum_parts(inverse, parts, unique.size, power)
        np.testing.assert_array_equal(sums, sum_rows(inverse, parts, unique.size))
        np.testing.assert_array_equal(repeated, several)
        np.testing.assert_allclose(magnitudes, expected[several], rtol=1e-6)


def test_an_empty_batch() -> None:
    unique, inverse = unique_inverse(np.empty(0, np.int64))
    assert unique.size == inverse.size == 0
    assert sum_rows(inverse, np.empty((0, 4), np.float32), 0).shape == (0, 4)


def test_tables_that_share_an_array_share_its_unique_ids() -> None:
    shared, own = np.array([7, 7, 3], np.int64), np.array([1, 2, 1], np.int64)
    found = unique_by_table({"wide": shared, "deep": shared, "other": own})
    assert found["wide"] is found["deep"]
    assert [ids.tolist() for ids in found["wide"]] == [[7, 3], [0, 0, 1]]
    assert [ids.tolist() for ids in found["other"]] == [[1, 2], [0, 1, 0]]
