"""The heartbeat message. It is not stored, and losing one is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName, Service

HEARTBEAT_INTERVAL_S = 1.0
"""Default of the seconds between heartbeats; one second keeps the display current at no measurable cost."""
HEARTBEAT_TIMEOUT_S = 6.0
"""Default of the seconds without a heartbeat after which a process counts as failed; detected within ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat with metrics, once a second.

    Attributes:
        time_s: its wall clock.
        metrics: ``rss_bytes``, ``cpu_s``; worker: ``records``, ``batches`` (computed), ``progress`` (finished batches
            of any purpose), ``loss``, ``data_requests``, ``data_fetched_bytes``, ``data_cached_bytes``; ps: ``step``,
            ``rows``...
    """

    service: Service
    name: PodName
    incarnation: Incarnation
    time_s: float
    metrics: Mapping[str, float]
