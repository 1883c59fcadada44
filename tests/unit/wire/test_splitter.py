"""A request of a worker in parts: each ps gets what it holds, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.ps.example import GATHERED_SIZE, TRAINABLE_SIZE, push_of, signature

from elasticdl.shared.model.placement import Placement
from elasticdl.shared.wire import messages
from elasticdl.worker.ps_client.splitter import Splitter


@pytest.mark.parametrize("ps", [1, 2, 3])
def test_a_gradient_goes_with_its_id(ps: int) -> None:
    """Rows of a batch are in no order of their owners; the gradient of row k is k everywhere."""
    ids = np.random.default_rng(5).permutation(40).astype(np.int64)
    rows = np.repeat(ids[:, None], 4, axis=1).astype(np.float32)
    request = replace(push_of(0, 0), rows={"a": (ids, rows)})
    split = Splitter(signature(), "plan", Placement.even(ps)).push(request)
    got: list[int] = []
    dense = 0
    for push in split.requests:
        assert isinstance(push, messages.Push)
        dense += push.dense.size
        for table in push.tables:
            np.testing.assert_array_equal(table.gradients, np.repeat(table.ids[:, None], 4, axis=1))
            got += table.ids.tolist()
    assert sorted(got) == sorted(ids.tolist())
    assert dense == TRAINABLE_SIZE + GATHERED_SIZE
