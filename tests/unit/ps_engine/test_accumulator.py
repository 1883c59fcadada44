"""Gradient accumulation: the mean, its state, its refusals."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.engine.accumulator import Accumulator, Gradients, Sums
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.signature import RowInitializer, RowTable

TABLE = RowTable(name="t", width=2, initializer=RowInitializer(distribution="zeros"))


def batch(dense: list[float], rows: dict[int, list[float]]) -> Gradients:
    ids = np.array(list(rows), np.int64)
    return Gradients(
        dense=np.array(dense, np.float32),
        rows={"t": RowGradients(ids, np.array(list(rows.values()), np.float32).reshape(-1, 2))},
    )


def as_dict(gradients: Gradients | Sums) -> dict[int, list[float]]:
    ids, rows, *_ = gradients.rows["t"]
    return {int(row_id): row.tolist() for row_id, row in zip(ids, rows, strict=True)}


def test_the_mean_counts_an_absent_row_as_zero_and_is_taken_once() -> None:
    accumulator = Accumulator(2, 0, [TABLE])
    accumulator.add(batch([1, 2], {7: [1, 2], -3: [4, 4]}))
    accumulator.add(batch([3, 2], {-3: [4, 0], 9: [2, 2]}))
    accumulator.add(Gradients(dense=np.zeros(2, np.float32), rows={}))
    accumulator.add(batch([0, 0], {}))
    assert accumulator.weight == 4
    mean = accumulator.take()
    assert mean.dense.tolist() == [1, 1]
    assert as_dict(mean) == {7: [0.25, 0.5], -3: [2, 1], 9: [0.5, 0.5]}
    assert accumulator.weight == 0
    with pytest.raises(ValueError, match="nothing"):
        accumulator.take()
    accumulator.add(batch([5, 5], {7: [1, 1]}))
    mean = accumulator.take()
    assert mean.dense.tolist() == [5, 5]
    assert as_dict(mean) == {7: [1, 1]}


def test_a_restored_accumulator_goes_on() -> None:
    accumulator, restored = Accumulator(1, 0, [TABLE]), Accumulator(1, 0, [TABLE])
    accumulator.add(batch([1], {1: [1, 1]}))
    state = accumulator.state()
    restored.add(batch([99], {50: [1, 1]}))
    restored.load(state)
    for one in (accumulator, restored):
        one.add(batch([2], {2: [3, 3], 1: [1, 0]}))
    assert accumulator.weight == restored.weight == 2
    mean, again = accumulator.take(), restored.take()
    assert np.array_equal(mean.dense, again.dense)
    assert as_dict(mean) == as_dict(again) == {1: [1, 0.5], 2: [1.5, 1.5]}


def test_a_state_is_a_copy() -> None:
    accumulator = Accumulator(1, 0, [TABLE])
    accumulator.add(batch([1], {1: [1, 1]}))
    state = accumulator.state()
    accumulator.add(batch([1], {1: [1, 1], 2: [1, 1]}))
    assert state.sums.dense.tolist() == [1]
    assert as_dict(state.sums) == {1: [1, 1]}


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(ProtocolError, match="another dense size"):
        Accumulator(3, 0, [TABLE]).load(Accumulator(2, 0, [TABLE]).state())


def test_many_rows_grow_the_sums() -> None:
    accumulator = Accumulator(0, 0, [TABLE])
    generator = np.random.default_rng(0)
    expected = np.zeros((500, 2), np.float64)
    for _ in range(8):
        ids = generator.permutation(500)[:200]
        rows = generator.normal(size=(200, 2)).astype(np.float32)
        expected[ids] += rows
        accumulator.add(Gradients(dense=np.zeros(0, np.float32), rows={"t": RowGradients(ids, rows)}))
    ids, mean, _ = accumulator.take().rows["t"]
    np.testing.assert_allclose(mean, expected[ids] / 8, rtol=1e-5, atol=1e-6)


def test_the_mean_has_the_same_bits_in_whatever_order_batches_arrive() -> None:
    generator = np.random.default_rng(0)
    batches = [
        (
            Gradients(
                dense=generator.normal(size=1000).astype(np.float32),
                rows={
                    "t": RowGradients(
                        np.sort(generator.permutation(60)[:40]), generator.normal(size=(40, 2)).astype(np.float32)
                    )
                },
            ),
            generator.normal(size=10).astype(np.float32),
            weight,
        )
        for weight in (512, 512, 37, 512, 1)
    ]
    means = set()
    for order in permutations(batches):
        accumulator = Accumulator(1000, 10, [TABLE])
        for gradients, layer_state, weight in order:
            accumulator.add(gradients, weight, layer_state)
        mean = accumulator.take()
        ids, rows, _ = mean.rows["t"]
        means.add((mean.dense.tobytes(), mean.layer_state.tobytes(), rows[np.argsort(ids)].tobytes()))
    assert len(means) == 1


@pytest.mark.parametrize("weight", [3, 7, 512, 1_000_003])
def test_the_mean_of_a_summed_round_has_the_bits_of_one_that_was_accumulated(weight: int) -> None:
    sums, layer_states = summed_round(weight)
    expected = accumulated_mean(sums, layer_states, weight)
    alone, after = Accumulator(1000, 2, []), Accumulator(1000, 2, [])
    for _ in range(2):
        assert bits_of(alone.mean_with(sums.astype(np.float64), layer_states, weight)) == bits_of(expected)
        assert alone.weight == 0
    after.add(Gradients(dense=np.zeros(1000, np.float32), rows={}), weight=1)
    assert bits_of(after.mean_with(sums.astype(np.float64), layer_states, weight - 1)) == bits_of(expected)
    assert alone.mean_with(None, [], 0) is None


@pytest.mark.parametrize("weight", [3, 512])
def test_the_mean_of_a_round_counts_as_many_records_as_it_has(weight: int) -> None:
    sums, layer_states = summed_round(weight)
    expected = accumulated_mean(sums, layer_states, weight)
    alone, after = Accumulator(1000, 2, []), Accumulator(1000, 2, [])
    found = alone.mean_with(expected.dense, layer_states, weight)
    assert bits_of(found) == bits_of(expected)
    assert alone.weight == 0
    after.add(Gradients(dense=np.ones(1000, np.float32), rows={}), weight=weight)
    halved = after.mean_with(expected.dense, [], weight)
    assert halved is not None
    np.testing.assert_allclose(halved.dense, (expected.dense + 1) / 2, rtol=1e-6)


def summed_round(weight: int) -> tuple[Any, list[tuple[int, Any]]]:
    """A sum of gradients, and updates of layer state with their weights."""
    sums = np.random.default_rng(weight).normal(size=1000).astype(np.float32)
    sums[:5] = [0.0, -0.0, 1e-40, -1.5e-45, 3e38]
    return sums, [(weight - 1, np.array([0.25, 3], np.float32)), (1, np.array([1e-3, -3], np.float32))]


def accumulated_mean(sums: Any, layer_states: list[tuple[int, Any]], weight: int) -> Gradients:
    """What an accumulator gives for them, one after the other."""
    accumulated = Accumulator(1000, 2, [])
    accumulated.add(Gradients(dense=sums, rows={}), weight=1)
    for each, layer_state in layer_states:
        accumulated.add(Gradients(dense=np.zeros(1000, np.float32), rows={}), weight=each, layer_state=layer_state)
    accumulated.weight = weight
    return accumulated.take()


def bits_of(mean: Gradients | None) -> tuple[bytes, bytes]:
    assert mean is not None
    return mean.dense.tobytes(), mean.layer_state.tobytes()


def test_magnitudes_are_those_of_all_batches_as_one() -> None:
    """Parts of lookups: (id, gradient) of two batches of 3 and 1 records, means over their own records."""
    parts = [([(7, 2.0), (7, 4.0), (9, 1.0)], 3), ([(7, 8.0)], 1)]
    for power in (1, 2):
        accumulator = Accumulator(0, 0, [TABLE], gathered=0, power=power)
        expected: dict[int, tuple[float, float]] = {}
        for uses, records in parts:
            ids = np.unique([row_id for row_id, _ in uses])
            sums, magnitudes = (
                np.array([[sum(of(g) for one, g in uses if one == row_id)] * 2 for row_id in ids], np.float32)
                for of in (float, lambda g, power=power: abs(g) ** power)
            )
            repeated = ids[[sum(one == row_id for one, _ in uses) > 1 for row_id in ids]]
            rows = RowGradients(ids, sums)
            if repeated.size:
                rows = rows.repeated(repeated, magnitudes[np.isin(ids, repeated)], power)
            accumulator.add(Gradients(dense=np.zeros(0, np.float32), rows={"t": rows}), records)
            for row_id, gradient in uses:
                share = gradient * records / 4
                mean, magnitude = expected.get(row_id, (0.0, 0.0))
                expected[row_id] = mean + share, magnitude + abs(share) ** power
        again = Accumulator(0, 0, [TABLE], gathered=0, power=power)
        again.load(accumulator.state())
        for one in (accumulator, again):
            ids, means, magnitudes = one.take().rows["t"]
            found = {int(n): (m[0], s[1]) for n, m, s in zip(ids, means, magnitudes, strict=True)}
            assert found == expected


def test_magnitudes_of_unknown_ids_are_refused() -> None:
    rows = RowGradients(np.array([3, 7], np.int64), np.ones((2, 2), np.float32))
    for some in ([5], [7, 3]):
        with pytest.raises(ProtocolError, match="magnitudes"):
            rows.repeated(np.array(some, np.int64), np.ones((len(some), 2), np.float32), 2)
