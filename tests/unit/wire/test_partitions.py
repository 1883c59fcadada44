"""The table from partitions to ps, and parts of parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.partitioning import dense_part, take
from elasticdl.shared.model.placement import (
    PARTITIONS,
    Placement,
    decode_placement,
    encode_placement,
    group_id,
    ranges_of,
)
from elasticdl.shared.model.signature import DenseVariable, VariableKind

sets = st.sets(st.integers(0, PARTITIONS - 1), min_size=1)
models = st.lists(st.tuples(st.integers(0, 700), st.sampled_from(list(VariableKind))), max_size=6).map(
    lambda facts: [
        DenseVariable(name=f"v{number}", shape=(size,), kind=kind) for number, (size, kind) in enumerate(facts)
    ]
)


def test_a_table_survives_its_register() -> None:
    placement = Placement.even(3).moved(((10, 20), (250, 256)), to=7, version=4)
    assert decode_placement(encode_placement(placement)) == placement
    assert placement.partitions(7) == ((10, 20), (250, 256))
    assert placement.holders == (0, 1, 2, 7)
    with pytest.raises(ProtocolError, match="placement"):
        decode_placement(b"\x0a")


def test_a_group_is_named_by_what_it_covers() -> None:
    assert group_id(ranges_of([3, 0, 1, 255])) == "0-1,3-3,255-255"


@given(model=models, outer=sets, data=st.data())
def test_a_part_of_a_part_is_found_in_it(model: list[DenseVariable], outer: set[int], data: st.DataObject) -> None:
    inner = data.draw(st.sets(st.sampled_from(sorted(outer))))
    flat = np.arange(sum(variable.size for variable in model), dtype=np.float32)
    whole, part = dense_part(model, ranges_of(outer)), dense_part(model, ranges_of(inner))
    found = take(whole.gather(flat), whole.places(part))
    np.testing.assert_array_equal(found, part.gather(flat))
