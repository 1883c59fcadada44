"""Columns arrive in the user's feed as they are in the data, however they travel."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.columns import ColumnPacker

pytestmark = pytest.mark.tensorflow


def test_columns_come_back_in_order_with_their_types_and_shapes() -> None:
    columns = {
        "b": np.arange(3, dtype=np.int32),
        "text": np.array(["x", "", "ü"], dtype=object),
        "a": np.arange(3, 6, dtype=np.int32),
        "vector": np.arange(6, dtype=np.float32).reshape(3, 2),
        "flag": np.array([True, False, True]),
    }
    packer = ColumnPacker()
    packed = packer.pack(columns)
    found = packer.unpack(packed)
    assert list(found) == list(columns)
    assert len(packed) == 4, "columns of one type travel as one tensor"
    for key, spec in packer.signature().items():
        assert spec.is_compatible_with(packed[key])
    assert [value.decode() for value in found["text"].numpy()] == ["x", "", "ü"]
    for name in ("b", "a", "vector", "flag"):
        assert found[name].numpy().dtype == columns[name].dtype
        np.testing.assert_array_equal(found[name].numpy(), columns[name])


def test_a_narrower_type_is_widened_and_another_kind_refused() -> None:
    packer = ColumnPacker()
    packer.pack({"a": np.arange(3, dtype=np.int64)})
    assert packer.unpack(packer.pack({"a": np.arange(2, dtype=np.int32)}))["a"].numpy().tolist() == [0, 1]
    with pytest.raises(UserError, match="column 'a' is float64 in this batch and was int64 in the first one"):
        packer.pack({"a": np.zeros(2)})
    with pytest.raises(UserError, match=r"columns \['b'\]"):
        packer.pack({"b": np.zeros(2)})
