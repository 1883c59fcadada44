"""Puts the parts of a ring together for one worker: its replica, the ring, and the service of ps-0."""

from __future__ import annotations

import time
from collections.abc import Callable

from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.worker.ps_client import PsClient
from elasticdl.worker.replica.membership import RingMembership
from elasticdl.worker.replica.servers import RingServers
from elasticdl.worker.replica.serving import Serving, Surroundings
from elasticdl.worker.replica.state import Replica
from elasticdl.worker.ring.listener import RingSettings
from elasticdl.worker.ring.replica_set import ReplicaSet

_POLL_S = 0.02

__all__ = ["RingWorker", "Surroundings"]


class RingWorker:
    """A worker as a member of the ring.

    Args:
        ps: the client of ps-0, for everything but training batches.
        failed: takes an error that ends this process.
    """

    def __init__(
        self,
        around: Surroundings,
        signature: ModelSignature,
        ps: PsClient,
        *,
        publisher: EventPublisher,
        failed: Callable[[BaseException], None],
    ) -> None:
        settings = around.settings
        self._clock = around.clock
        self.replica = Replica(around.spec, signature, around.clock)
        self._serving = Serving(around, self.replica.core, on_serving=self._on_serving, failed=failed)
        membership = RingMembership(around.bus, around.loop, publisher, run=settings.run, failed=failed)
        self._ring = ReplicaSet(
            RingSettings(
                worker=settings.pod,
                incarnation=around.incarnation,
                token=settings.token,
                host=settings.host,
                advertised_host=settings.advertised_host,
            ),
            self.replica,
            membership,
            self._serving,
            failed=failed,
        )
        membership.address = self._ring.address
        self.servers = RingServers(self.replica, self._ring, ps)

    def start(self) -> None:
        """Ask to be a member."""
        self._ring.start()

    def wait_for_model(self, timeout_s: float) -> bool:
        """Wait until the replica has a model; whether it has."""
        end_s = self._clock.monotonic() + timeout_s
        while not self.replica.has_model:
            if self._clock.monotonic() >= end_s:
                return False
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """Leave the ring after the round that is reduced now, and stop serving."""
        self._ring.leave()
        self._ring.close()
        self._serving.close()

    def _on_serving(self) -> None:
        self._ring.model_ready()
