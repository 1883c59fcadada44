"""Record hashes: the compiled loops against the scalar definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import hash_kernels
from elasticdl.shared.job.permutation import mix64
from elasticdl.shared.model import partitioning


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=50))
def test_compiled_and_numpy_hashes_are_equal(pairs: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in pairs], np.uint64)
    rows = np.array([row for _, row in pairs], np.uint64)
    out = np.empty_like(values)
    hash_kernels.mix(values, out)
    assert out.tolist() == partitioning.mix64_array(values).tolist() == [mix64(int(value)) for value in values]
    folded = rows.copy()
    hash_kernels.fold(folded, values)
    assert folded.tolist() == [mix64(int(row) ^ int(value)) for row, value in zip(rows, values, strict=True)]
