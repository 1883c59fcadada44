"""Who holds what: everything has exactly one place, and the shares are even."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticdl.shared.job.permutation import mix64
from elasticdl.shared.model.partitioning import dense_parts, partitions_of, split_rows
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import DenseVariable, VariableKind
from elasticdl.shared.wire.messages import Ids

variables = st.lists(
    st.builds(lambda size, kind: (size, kind), size=st.integers(0, 20), kind=st.sampled_from(list(VariableKind))),
    max_size=8,
).map(
    lambda facts: [
        DenseVariable(name=f"v{number}", shape=(size,), kind=kind) for number, (size, kind) in enumerate(facts)
    ]
)


@given(ids=hnp.arrays(np.int64, st.integers(0, 200)))
def test_partitions_follow_mix64(ids: Ids) -> None:
    assert partitions_of(ids).tolist() == [mix64((int(one) & (2**64 - 1)) ^ 0x6A09E667F3BCC909) >> 56 for one in ids]


@given(ids=hnp.arrays(np.int64, st.integers(0, 200)), ps=st.integers(1, 7))
def test_every_id_goes_to_its_owner(ids: Ids, ps: int) -> None:
    placement = Placement.even(ps)
    split = split_rows(ids, placement)
    order = np.arange(ids.size) if split.order is None else split.order
    assert sorted(order.tolist()) == list(range(ids.size))
    np.testing.assert_array_equal(split.ids, ids[order])
    for number in range(ps):
        owned = partitions_of(split.ids[split.part(number)]).tolist()
        assert all(placement.owners[partition] == number for partition in owned)


def test_rows_are_spread_evenly() -> None:
    counts = np.diff(split_rows(np.arange(100_000), Placement.even(4)).bounds)
    assert counts.min() > 24_000


@given(model=variables, ps=st.integers(1, 5))
def test_dense_parts_put_together_are_the_whole(model: list[DenseVariable], ps: int) -> None:
    parts = dense_parts(model, Placement.even(ps))
    flat = np.arange(sum(variable.size for variable in model), dtype=np.float32)
    rebuilt = np.full_like(flat, -1)
    for part in parts:
        part.scatter(part.gather(flat), rebuilt)
    np.testing.assert_array_equal(rebuilt, flat)
    gradients = [sum(place.stop - place.start for place in part.gradients) for part in parts]
    assert sum(gradients) == sum(v.size for v in model if v.kind is VariableKind.TRAINABLE)
    assert max(gradients) - min(gradients) <= 1
    assert sum(part.size for part in parts) == flat.size


def test_a_placement_is_complete() -> None:
    with pytest.raises(ValueError, match="256"):
        Placement(version=1, owners=(0, 1))
    with pytest.raises(ValueError, match="1 to 256"):
        Placement.even(0)
