from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from elasticdl.shared.process.clock import VirtualClock
from elasticdl.shared.process.repeated_lines import INTERVAL_S, RepeatedLines


def test_what_a_peer_repeats_is_said_once_and_then_counted_per_interval() -> None:
    clock = VirtualClock()
    with capture_logs() as logged:
        lines = RepeatedLines(structlog.get_logger(), clock)
        for number in range(900_000):
            lines.warning("connection refused", peer=str(number))
        lines.warning("connection closed", peer="other")
        assert [line["event"] for line in logged] == ["connection refused", "connection closed"]
        clock.advance(INTERVAL_S)
        lines.warning("connection refused", peer="last")
    assert logged[-1]["peer"] == "last"
    assert logged[-1]["others_like_it"] == 899_999
