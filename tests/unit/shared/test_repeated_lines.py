from __future__ import annotations

from typing import cast

from structlog.testing import CapturingLogger
from structlog.typing import FilteringBoundLogger

from elasticdl.shared.process.clock import VirtualClock
from elasticdl.shared.process.repeated_lines import INTERVAL_S, RepeatedLines


def test_what_a_peer_repeats_is_said_once_and_then_counted_per_interval() -> None:
    clock, log = VirtualClock(), CapturingLogger()
    lines = RepeatedLines(cast(FilteringBoundLogger, log), clock)
    for number in range(900_000):
        lines.warning("connection refused", peer=str(number))
    lines.warning("connection closed", peer="other")
    assert [call.args for call in log.calls] == [("connection refused",), ("connection closed",)]
    clock.advance(INTERVAL_S)
    lines.warning("connection refused", peer="last")
    assert log.calls[-1].kwargs == {"peer": "last", "others_like_it": 899_999}
