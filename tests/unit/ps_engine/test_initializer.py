"""Initial rows: distributions, determinism, independence."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.permutation import derive_key, mix64
from elasticdl.shared.model.rows.initial_rows import Initializer
from elasticdl.shared.model.signature import RowInitializer, RowTable

IDS = np.arange(-20_000, 20_000)
WIDTH = 8
GOLDEN = [[0.38964617252349854, -0.8283841609954834], [0.4744371175765991, -0.9349011182785034]]


def rows(
    distribution: str, low: float = 0.0, high: float = 0.0, *, name: str = "t", seed: int = 1
) -> NDArray[np.float32]:
    table = RowTable(name=name, width=WIDTH, initializer=RowInitializer(distribution=distribution, low=low, high=high))
    out = np.empty((IDS.size, WIDTH), np.float32)
    Initializer.of(table, seed).fill(IDS, out.reshape(-1), WIDTH)
    return out


def test_zeros_and_constant() -> None:
    assert not rows("zeros", low=7.0).any()
    assert (rows("constant", low=7.0) == 7.0).all()


def test_uniform() -> None:
    values = rows("uniform", -0.05, 0.05)
    assert values.min() >= -0.05
    assert values.max() <= 0.05
    assert values.mean() == pytest.approx(0.0, abs=3e-4)
    assert values.std() == pytest.approx(0.1 / np.sqrt(12), rel=0.01)
    histogram, _ = np.histogram(values, bins=20, range=(-0.05, 0.05))
    assert histogram == pytest.approx(values.size / 20, rel=0.05)


def test_normal() -> None:
    values = rows("normal", 1.0, 0.5)
    assert values.mean() == pytest.approx(1.0, abs=5e-3)
    assert values.std() == pytest.approx(0.5, rel=0.01)
    assert np.mean(np.abs(values - 1.0) < 0.5) == pytest.approx(0.6827, abs=0.005)
    assert np.mean(np.abs(values - 1.0) < 1.0) == pytest.approx(0.9545, abs=0.005)


def test_truncated_normal() -> None:
    values = rows("truncated_normal", 1.0, 0.5)
    assert np.abs(values - 1.0).max() <= 1.0 + 1e-6
    assert values.mean() == pytest.approx(1.0, abs=5e-3)
    assert values.std() == pytest.approx(0.5 * 0.87962566, rel=0.01)


def test_columns_and_neighbouring_ids_are_uncorrelated() -> None:
    values = rows("normal", 0.0, 1.0)
    between_columns = np.corrcoef(values.T) - np.eye(WIDTH)
    assert np.abs(between_columns).max() < 0.03
    assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < 0.03
    assert abs(np.corrcoef(values[:-1, 1], values[1:, 0])[0, 1]) < 0.03


@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated_normal"])
def test_is_a_function_of_seed_table_and_id(distribution: str) -> None:
    base = rows(distribution, 0.0, 1.0)
    assert np.array_equal(base, rows(distribution, 0.0, 1.0))
    assert not np.isclose(base, rows(distribution, 0.0, 1.0, seed=2)).any(axis=1).all()
    assert not np.isclose(base, rows(distribution, 0.0, 1.0, name="u")).any(axis=1).all()
    assert np.unique(base, axis=0).shape == base.shape


def test_values_never_change_between_versions() -> None:
    """A restored job recomputes untrained rows: these numbers are part of the format."""
    table = RowTable(name="golden", width=2, initializer=RowInitializer(distribution="uniform", low=-1.0, high=1.0))
    ids, out = [0, -1], np.empty((2, 2), np.float32)
    Initializer.of(table, 42).fill(np.array(ids), out.reshape(-1), 2)
    name_hash = int.from_bytes(hashlib.blake2b(b"golden", digest_size=8).digest(), "little")
    key, mask = derive_key(42, name_hash), 2**64 - 1
    for row_id, row in zip(ids, out, strict=True):
        row_bits = mix64(key ^ (row_id & mask))
        assert row.tolist() == [2 * (mix64((row_bits + column) & mask) >> 40) / 2**24 - 1 for column in range(2)]
    assert out.tolist() == GOLDEN


def test_unknown_distribution_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="'orthogonal'"):
        rows("orthogonal")
