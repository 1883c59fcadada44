"""Metric states as arrays: their sums and their encoding."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.tasks import are_large
from elasticdl.shared.model import metric_states
from elasticdl.shared.model.metric_states import (
    add_parts,
    decode_states,
    encode_states,
    pack_states,
    sum_states,
)

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


STATES = st.dictionaries(st.sampled_from(["loss", "auc"]), st.lists(ARRAYS, min_size=1, max_size=3))


@given(many=st.lists(STATES, max_size=4), part_values=st.integers(1, 9))
def test_parts_of_any_size_add_up_to_the_sum_of_the_states(
    many: list[dict[str, list[np.ndarray]]], part_values: int
) -> None:
    shapes = {name: arrays for states in many for name, arrays in states.items()}
    alike = [
        {name: [array + number for array in shapes[name]] for name in states} for number, states in enumerate(many)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_states, "PART_VALUES_MAX", part_values)
        parts = [list(pack_states(encode_states(states))) for states in alike]
    assert add_parts({}, [part for each in parts for part in each]) == encode_states(sum_states(alike))
    if alike:
        rest = [part for each in parts[1:] for part in each]
        assert add_parts(encode_states(alike[0]), rest) == encode_states(sum_states(alike))


def test_damaged_parts_and_other_shapes_are_errors() -> None:
    (part,) = pack_states(encode_states({"auc": [np.ones(3)]}))
    with pytest.raises(ProtocolError, match="damaged"):
        add_parts({}, [part[:-1]])
    with pytest.raises(ProtocolError, match="states of metric auc have another shape"):
        add_parts(encode_states({"auc": [np.ones(4)]}), [part])
    with pytest.raises(ProtocolError):
        add_parts({}, [zlib.compress(b"\xff")])


def test_states_of_a_few_usual_metrics_are_small() -> None:
    few = {name: [np.zeros(()), np.zeros(())] for name in ("loss", "accuracy", "f1_score")}
    assert not are_large(encode_states(few))
    assert are_large(encode_states({"auc": [np.zeros(200)] * 4}))
