"""Signs of life: not stored, lost without harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.shared.names import Incarnation, PodName, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat with metrics, once a second.

    Attributes:
        service: which service.
        name: which process.
        incarnation: which life of it.
        time_s: the sender's wall clock.
        metrics: ``rss_bytes``, ``cpu_s``; worker: ``records``, ``batches`` (computed), ``progress`` (batches of any
            purpose that it came to the end of), ``loss``; ps: ``step``, ``rows``...
    """

    service: Service
    name: PodName
    incarnation: Incarnation
    time_s: float
    metrics: Mapping[str, float]
