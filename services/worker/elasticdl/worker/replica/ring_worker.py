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
from elasticdl.worker.replica.solo import SoloRing
from elasticdl.worker.replica.state import Replica

_POLL_S = 0.02
__all__ = ["RingWorker", "Surroundings"]


class RingWorker:
    """A worker as a member of the ring.

    Args:
        ps: of ps-0, for what is no training batch.
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
        self._clock = around.clock
        self.replica = Replica(around.spec, signature, around.clock)
        self._serving = Serving(around, self.replica.core, on_serving=self._on_serving, failed=failed)
        membership = RingMembership(
            around.bus,
            around.loop,
            publisher,
            run=around.settings.run,
            address="127.0.0.1:1",
            failed=failed,
        )
        self._ring = SoloRing(self.replica, membership, self._serving)
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
        """Leave the ring, and stop serving."""
        self._serving.close()

    def _on_serving(self) -> None:
        """Nothing waits for it yet."""
