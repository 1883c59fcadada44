"""Columns arrive in the user's feed as they are in the data, however they travel."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.ragged import Columns, Ragged
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


def test_ragged_columns_travel_as_ragged_tensors() -> None:
    splits = np.array([0, 2, 2, 3])
    columns: Columns = {
        "ids": Ragged(values=np.array([1, 2, 1 << 60]), splits=splits),
        "label": np.array([0.0, 1.0, 0.0]),
        "tags": Ragged(values=np.array(["a", "", "ü"], object), splits=splits),
    }
    packer = ColumnPacker()
    for batch in (columns, ColumnBatch.of(columns), ColumnBatch.of(columns).take(slice(0, 3))):
        packed = packer.pack(batch)
        for key, spec in packer.signature().items():
            assert spec.is_compatible_with(packed[key])
        found = packer.unpack(packed)
        assert list(found) == ["ids", "label", "tags"]
        assert found["ids"].to_list() == [[1, 2], [], [1 << 60]]
        assert found["tags"].to_list() == [[b"a", b""], [], ["ü".encode()]]
    assert packer.unpack(packer.pack(ColumnBatch.of(columns).take(slice(1, 2))))["ids"].to_list() == [[]]


def test_a_narrower_type_is_widened_and_another_kind_refused() -> None:
    packer = ColumnPacker()
    packer.pack({"a": np.arange(3, dtype=np.int64)})
    assert packer.unpack(packer.pack({"a": np.arange(2, dtype=np.int32)}))["a"].numpy().tolist() == [0, 1]
    with pytest.raises(UserError, match="column 'a' is float64 in this batch and was int64 in the first one"):
        packer.pack({"a": np.zeros(2)})
    with pytest.raises(UserError, match=r"columns \['b'\]"):
        packer.pack({"b": np.zeros(2)})
