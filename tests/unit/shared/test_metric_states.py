"""Metric states as arrays: their sums and their encoding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.model.metric_states import decode_states, encode_states, sum_states

ARRAYS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4).map(np.array)


@given(states=st.dictionaries(st.sampled_from(["loss", "auc"]), st.lists(ARRAYS, max_size=3)))
def test_states_survive_encoding(states: dict[str, list[np.ndarray]]) -> None:
    travelled = decode_states(encode_states(states))
    assert travelled.keys() == states.keys()
    for name, arrays in states.items():
        for one, other in zip(arrays, travelled[name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_scalars_become_flat_arrays() -> None:
    assert encode_states({"loss": [np.array(1.5)]}) == {"loss": (np.array([1.5], "<f8").tobytes(),)}


def test_states_add_up_and_lone_ones_stay() -> None:
    total = sum_states([{"a": [np.array([1.0, 2.0])]}, {"a": [np.array([10.0, 20.0])], "b": [np.array(3.0)]}])
    np.testing.assert_array_equal(total["a"][0], [11.0, 22.0])
    np.testing.assert_array_equal(total["b"][0], 3.0)


def test_a_sum_leaves_its_parts_alone() -> None:
    part = {"a": [np.array([1.0])]}
    sum_states([part])["a"][0] += 1.0
    np.testing.assert_array_equal(part["a"][0], [1.0])
