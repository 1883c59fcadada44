"""Creates the envelopes of a process's events, with number and time, and its heartbeats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, PodInstance, PodName, Service, new_incarnation
from elasticdl.shared.process.clock import Clock


@dataclass(slots=True, kw_only=True)
class EnvelopeFactory:
    """Creates envelopes for one process.

    Not thread-safe: envelopes have to reach the log in the order of their numbers.

    Attributes:
        run: incarnation of the launcher that opened its run of the job.
        instance: worker and ps: its pod instance.
        is_declared: whether an event on the log has declared ``run`` and ``instance``; later ones need not.
    """

    service: Service
    name: PodName
    clock: Clock
    incarnation: Incarnation = field(default_factory=new_incarnation)
    run: Incarnation = NOBODY
    instance: PodInstance = NO_INSTANCE
    is_declared: bool = field(default=False, init=False)
    number: int = field(default=0, init=False)

    def envelope(self, event: Event, *, cause: str = "") -> Envelope:
        """Wrap an event in the next envelope."""
        self.number += 1
        return Envelope(
            service=self.service,
            name=self.name,
            incarnation=self.incarnation,
            run=NOBODY if self.is_declared else self.run,
            instance=NO_INSTANCE if self.is_declared else self.instance,
            number=self.number,
            cause=cause,
            time_s=self.clock.now(),
            event=event,
        )

    def heartbeat(self, metrics: Mapping[str, float]) -> Heartbeat:
        """A heartbeat with these metrics and the processor time used so far."""
        times = os.times()
        return Heartbeat(
            service=self.service,
            name=self.name,
            incarnation=self.incarnation,
            time_s=self.clock.now(),
            metrics={**metrics, "cpu_s": times.user + times.system},
        )
