"""Layer state on the ps: each rule against what one process would compute, whatever the order of the batches."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.engine.dense import LayerState
from elasticdl.shared.model.partitioning import Block
from elasticdl.shared.model.signature import DenseVariable, StateRule, StateUpdate, VariableKind


def variable(rule: StateRule, size: int = 2, name: str = "norm/state") -> DenseVariable:
    return DenseVariable(name=name, shape=(size,), kind=VariableKind.STATISTIC, state=rule)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


AVERAGE = StateRule(update=StateUpdate.MOVING_AVERAGE, momentum=0.5)


@pytest.mark.parametrize(
    ("rule", "contributions", "expected"),
    [
        (StateRule(), (1.0, 2.0, 3.0), 16.0),
        (AVERAGE, (1.0, 2.0, 3.0), ((10.0 * 0.5 + 1.0) * 0.5 + 2.0) * 0.5 + 3.0),
        (StateRule(update=StateUpdate.ASSIGN), (1.0, 2.0, 3.0), 3.0),
        (StateRule(update=StateUpdate.MAXIMUM), (1.0, 12.0, 11.0), 12.0),
        (StateRule(update=StateUpdate.MINIMUM), (12.0, 2.0, 3.0), 2.0),
    ],
)
def test_each_rule_takes_batches_one_after_another(
    rule: StateRule, contributions: tuple[float, ...], expected: float
) -> None:
    state = LayerState([variable(rule)], [Block(0, 0, 2)])
    values = floats(10.0, 10.0)
    for contribution in contributions:
        state.check(values, floats(contribution, contribution))
        values = state.after(values, floats(contribution, contribution))
    np.testing.assert_allclose(values, [expected, expected])


@pytest.mark.parametrize("update", [StateUpdate.SUM, StateUpdate.MAXIMUM, StateUpdate.MINIMUM])
def test_sums_and_extremes_do_not_depend_on_the_order(update: StateUpdate) -> None:
    state = LayerState([variable(StateRule(update=update))], [Block(0, 0, 2)])
    results = set()
    for order in permutations([floats(1, 5), floats(2, 4), floats(9, -3)]):
        values = floats(0, 0)
        for contribution in order:
            values = state.after(values, contribution)
        results.add(values.tobytes())
    assert len(results) == 1


def test_each_block_follows_the_rule_of_its_variable() -> None:
    variables = [variable(AVERAGE, 3), variable(StateRule(), 2), variable(StateRule(update=StateUpdate.MAXIMUM), 2)]
    state = LayerState(variables, [Block(0, 1, 3), Block(1, 0, 1), Block(2, 0, 2)])
    after = state.after(floats(4, 8, 1, 1, 1), floats(1, 1, 1, 0, 2))
    np.testing.assert_array_equal(after, [3, 5, 2, 1, 2])


def test_a_negative_variance_is_refused_by_name() -> None:
    variance = StateRule(update=StateUpdate.MOVING_AVERAGE, momentum=0.5, low=0.0)
    variables = [variable(AVERAGE, name="norm/moving_mean"), variable(variance, name="norm/moving_variance")]
    state = LayerState(variables, [Block(0, 0, 2), Block(1, 0, 2)])
    values = floats(0, 0, 1, 1)
    state.check(values, floats(-9, -9, -0.5, 0))
    with pytest.raises(NotFiniteError, match=r"^layer state norm/moving_variance: 1 of .*-8.5.*at least 0\)$"):
        state.check(values, floats(-9, -9, -9, 0))


def test_a_count_that_float32_can_not_hold_is_refused_by_name() -> None:
    counter = variable(StateRule(low=-(2.0**24), high=2.0**24), name="counter/seen")
    state = LayerState([counter], [Block(0, 0, 2)])
    with pytest.raises(NotFiniteError, match=r"counter/seen.*must be between"):
        state.check(floats(0, 2.0**24), floats(0, 1024))


def test_a_sum_that_overflows_is_refused_by_name() -> None:
    state = LayerState([variable(StateRule())], [Block(0, 0, 2)])
    with pytest.raises(NotFiniteError, match="layer state norm/state: 1 of its values would be NaN or infinite"):
        state.check(floats(3e38, 0), floats(3e38, 0))
