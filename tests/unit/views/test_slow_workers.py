"""Slow workers are those that are slower than the median of the others, whatever their number."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.names import PodName
from elasticdl.views.wall_time.causes import Cause
from elasticdl.views.wall_time.slow_workers import BATCHES_MIN, SLOW, Pace, without_slow_workers

SECONDS = st.sampled_from([1.0, 1.0, 2.0, 4.0]) | st.floats(0.1, 10.0)


@given(st.lists(SECONDS, max_size=12))
def test_what_slow_workers_cost_is_moved_by_the_median_of_the_others(batch_s: list[float]) -> None:
    paces = {
        PodName(f"worker-{number}"): Pace(
            shares={Cause.COMPUTING: 1.0}, seconds=each * BATCHES_MIN, batches=BATCHES_MIN, slowest=(each, number + 1)
        )
        for number, each in enumerate(batch_s)
    }
    expected = {}
    for number, each in enumerate(batch_s):
        others = [*batch_s[:number], *batch_s[number + 1 :]]
        if others and each > SLOW * median(others) * (1.0 + 1e-9):
            expected[number + 1] = 1.0 - median(others) / each
    moved = list(without_slow_workers(paces))
    assert sum(seconds for _, seconds, _ in moved) == pytest.approx(0.0, abs=1e-9)
    found = {seq: seconds for cause, seconds, seq in moved if cause is Cause.SLOW_WORKER}
    for seq, seconds in expected.items():
        assert found[seq] == pytest.approx(seconds)
    assert all(batch_s[seq - 1] >= (SLOW - 1e-9) * min(batch_s) for seq in found)
