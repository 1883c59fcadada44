"""Sends the heartbeats of a service, and serves the last one as metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from elasticdl.shared.bus.ports import Signals
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.monitoring.exposition import text_of
from elasticdl.shared.monitoring.metrics_server import serving_metrics
from elasticdl.shared.monitoring.processes import families_of
from elasticdl.shared.process.envelopes import EnvelopeFactory


async def send_heartbeats(
    signals: Signals,
    envelopes: EnvelopeFactory,
    interval_s: float,
    metrics: Callable[[], Mapping[str, float]] = dict,
    *,
    metrics_port: int = 0,
) -> None:
    """Send heartbeats until cancelled.

    Args:
        metrics: returns the metrics of the next one; it must not block.
        metrics_port: where the last heartbeat is served for Prometheus; 0: nowhere.
    """
    last: list[Heartbeat] = []
    async with serving_metrics(lambda: text_of(families_of(last)), metrics_port):
        while True:
            last[:] = [envelopes.heartbeat(metrics())]
            await signals.send_heartbeat(last[0])
            await asyncio.sleep(interval_s)
