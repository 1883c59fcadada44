"""How a process speaks: its events, numbered and stamped, and its heartbeats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.shared.process.clock import Clock


@dataclass(slots=True, kw_only=True)
class EnvelopeFactory:
    """One life of one process. Not thread-safe: envelopes have to reach the log in the order of their numbers.

    Attributes:
        service: which service.
        name: which process.
        incarnation: which life of it.
        clock: for the time of what is said.
        number: of the last envelope.
    """

    service: Service
    name: PodName
    incarnation: Incarnation
    clock: Clock
    number: int = field(default=0, init=False)

    def envelope(self, event: Event, *, cause: str = "") -> Envelope:
        """The next event of this life.

        Args:
            event: what happened.
            cause: id of what led to it.
        """
        self.number += 1
        return Envelope(
            service=self.service,
            name=self.name,
            incarnation=self.incarnation,
            number=self.number,
            cause=cause,
            time_s=self.clock.now(),
            event=event,
        )

    def beat(self, metrics: Mapping[str, float]) -> Beat:
        """A heartbeat with these metrics and the processor time used so far."""
        times = os.times()
        return Beat(
            service=self.service,
            name=self.name,
            incarnation=self.incarnation,
            time_s=self.clock.now(),
            metrics={**metrics, "cpu_s": times.user + times.system},
        )
