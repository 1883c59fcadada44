"""The signs of life that a service gives for as long as it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from elasticdl.shared.bus.ports import Signals
from elasticdl.shared.process.envelopes import EnvelopeFactory


async def keep_beating(
    signals: Signals, envelopes: EnvelopeFactory, interval_s: float, metrics: Callable[[], Mapping[str, float]] = dict
) -> None:
    """Beat until cancelled.

    Args:
        signals: where to.
        envelopes: in whose name.
        interval_s: seconds between two heartbeats.
        metrics: what the next one says besides; it must not block.
    """
    while True:
        await signals.beat(envelopes.beat(metrics()))
        await asyncio.sleep(interval_s)
