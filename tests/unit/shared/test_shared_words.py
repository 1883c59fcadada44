"""Words of messages: sizes, counts and durations."""

from __future__ import annotations

import pytest

from elasticdl.shared.words import count, size, stopwatch, times


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (count(1, "worker"), "1 worker"),
        (count(0, "worker"), "0 workers"),
        (count(1200, "batch", "batches"), "1,200 batches"),
        (size(1), "1 byte"),
        (size(999), "999 bytes"),
        (size(1_500), "1.5 KiB"),
        (size((1 << 20) - 1), "1 MiB"),
        (size(1_500_000_000), "1.4 GiB"),
        (size(2e15), "1819 TiB"),
        (stopwatch(65.9), "1:05"),
        (stopwatch(7265), "2:01:05"),
        (times(1), "once"),
        (times(3), "3 times"),
    ],
)
def test_a_quantity_reads_naturally(shown: str, text: str) -> None:
    assert shown == text
