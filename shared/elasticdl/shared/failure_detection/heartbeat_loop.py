"""Sends the heartbeats of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from elasticdl.shared.bus.ports import Signals
from elasticdl.shared.process.envelopes import EnvelopeFactory


async def send_heartbeats(
    signals: Signals, envelopes: EnvelopeFactory, interval_s: float, metrics: Callable[[], Mapping[str, float]] = dict
) -> None:
    """Send heartbeats until cancelled; ``metrics``: returns the metrics of the next one; it must not block."""
    while True:
        await signals.send_heartbeat(envelopes.heartbeat(metrics()))
        await asyncio.sleep(interval_s)
