"""Numbers in words."""

from __future__ import annotations

import pytest

from elasticdl.shared.quantities import count, size, stopwatch, times


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (count(1, "worker"), "1 worker"),
        (count(0, "worker"), "0 workers"),
        (count(1200, "batch", "batches"), "1,200 batches"),
        (size(1), "1 byte"),
        (size(999), "999 bytes"),
        (size(1_000), "1.0 kB"),
        (size(999_960), "1.0 MB"),
        (size(1_500_000_000), "1.5 GB"),
        (size(2e15), "2000.0 TB"),
        (stopwatch(65.9), "1:05"),
        (stopwatch(7265), "2:01:05"),
        (times(1), "once"),
        (times(3), "3 times"),
    ],
)
def test_a_quantity_reads_naturally(shown: str, text: str) -> None:
    assert shown == text
