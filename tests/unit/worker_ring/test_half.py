"""Sums that travel in 16 bits: all members have the same ones, rounded once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.unit.worker_ring.test_collective import Summand, rings
from tests.unit.worker_ring.test_replica_set import check, ring_of, train

from elasticdl.worker.ring.half import Half


def reduce_all(made: list[Any], summands: list[Summand], half: Half) -> None:
    threads = [
        threading.Thread(target=ring.all_reduce, args=(one.array,), kwargs={"block": one.block, "half": half})
        for ring, one in zip(made, summands, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a member is still blocked"


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(("precision", "digits"), [("bfloat16", 8), ("float16", 11)])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_members_have_the_same_sum_rounded_once(size: int, precision: str, digits: int, is_shared: bool) -> None:
    half = Half.of(precision)
    assert half is not None
    with rings(size) as made:
        for elements in (1, 33, 100_003):
            values = [np.random.default_rng(rank).normal(size=elements).astype(np.float32) for rank in range(size)]
            summands = [Summand(one, is_shared=is_shared) for one in values]
            reduce_all(made, summands, half)
            for one in summands[1:]:
                np.testing.assert_array_equal(one.array, summands[0].array)
            exact = np.sum(values, axis=0, dtype=np.float64)
            error = np.abs(summands[0].array - exact)
            assert np.all(error <= np.abs(exact) * 2.0**-digits + 1e-5)
            rounded = summands[0].array.astype(half.dtype).astype(np.float32)
            np.testing.assert_array_equal(rounded, summands[0].array)


def test_float16_limits_what_is_too_large() -> None:
    half = Half.of("float16")
    assert half is not None
    means = np.array([1000.0, -1e6, 0.0, np.nan], np.float32)
    restored = np.empty(4, np.float32)
    half.restore(half.round(means), restored)
    np.testing.assert_array_equal(restored, np.array([1000.0, -65504, 0.0, np.nan], np.float32))
    assert Half.of("float32") is None


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_replicas_stay_equal_with_sums_of_16_bits(precision: str) -> None:
    with ring_of(3, precision=precision, check_steps=1) as workers:
        train(workers)
        check(workers)
        assert all(worker.differences == [] for worker in workers)
        rounded = workers[0].state.weights.copy()
    with ring_of(3) as workers:
        train(workers)
        exact = workers[0].state.weights
        assert not np.array_equal(rounded, exact)
        np.testing.assert_allclose(rounded, exact, atol=2e-3)
