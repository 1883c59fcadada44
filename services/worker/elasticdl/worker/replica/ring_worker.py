"""Puts the parts of a ring together for one worker: its replica, the ring, and the service of ps-0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.ps.engine.updater import Updater
from elasticdl.ps.service import HostedReplica
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.commands import Command, OpenPin, TakeSnapshot
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.worker.ps_client import PsClient
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables
from elasticdl.worker.replica.membership import RingMembership
from elasticdl.worker.replica.servers import RingAndTables, RingServers
from elasticdl.worker.replica.serving import Serving, Surroundings
from elasticdl.worker.replica.state import Replica
from elasticdl.worker.ring.listener import RingSettings
from elasticdl.worker.ring.replica_set import ReplicaSet

_POLL_S = 0.02
_COMMIT_S = 0.5
"""Seconds to wait for rounds that are being committed."""

__all__ = ["RingWorker", "Surroundings"]


class RingWorker:
    """A worker as a member of the ring.

    Args:
        ps: the client of ps-0, for everything but training batches; of the ps with the tables, too, if there are any.
        updater: see ``Replica``.
        failed: takes an error that ends this process.
    """

    def __init__(
        self,
        around: Surroundings,
        signature: ModelSignature,
        ps: PsClient | DenseAndTables,
        *,
        publisher: EventPublisher,
        failed: Callable[[BaseException], None],
        updater: Updater | None = None,
    ) -> None:
        settings = around.settings
        self._clock = around.clock
        self._has_asked, self._has_tables = False, around.spec.has_tables_beside_ring
        self.replica = Replica(around.spec, signature.without_tables, around.clock, updater=updater)
        hosted = HostedReplica(core=self.replica.core, on_serving=self._on_serving, before_order=self._before_order)
        self._serving = Serving(around, hosted, failed=failed)
        membership = self._membership = RingMembership(
            around.bus,
            around.loop,
            publisher,
            run=settings.run,
            tensors=[variable.name for variable in signature.dense],
            failed=failed,
        )
        self._ring = ReplicaSet(
            RingSettings(
                worker=settings.pod,
                incarnation=around.incarnation,
                token=settings.token,
                host=settings.host,
                advertised_host=settings.advertised_host,
                is_deterministic=around.spec.deterministic,
                precision=around.spec.ring_precision,
                check_steps=around.spec.replica_check_steps,
            ),
            self.replica,
            membership,
            self._serving,
            failed=failed,
        )
        membership.address, membership.node = self._ring.address, settings.node
        self.servers = RingServers(self.replica, self._ring, ps)
        if isinstance(ps, DenseAndTables):
            self.servers = RingAndTables(self.replica, self._ring, ps)

    @property
    def address(self) -> str:
        """``host:port`` at which it accepts connections of other members."""
        return self._ring.address

    @property
    def is_alone(self) -> bool:
        """Whether this worker needs nothing of another process to commit a batch."""
        return self._ring.is_alone and not self._has_tables

    def start(self) -> None:
        """Ask to be a member."""
        self._has_asked = True
        self._ring.start()

    def wait_until_member(self, timeout_s: float) -> bool:
        """Wait until this worker is a member of the ring, so that it can train; whether it is."""
        return self._ring.wait_until_member(timeout_s)

    def ask_to_leave(self) -> None:
        """Leave the ring after the round that is reduced now; returns at once. Nothing waits for a generation then."""
        if self._has_asked:  # A spare may end without having been a member.
            self._ring.ask_to_leave()

    def close(self) -> None:
        """Leave the ring after the round that is reduced now, and stop serving."""
        if self._has_asked:
            self._ring.leave()
        self._membership.close()
        self._ring.close()
        self._serving.close()

    async def _before_order(self, command: Command) -> None:
        """Wait for rounds that workers have reported and that are committed in a moment.

        Raises:
            TransientError: the final snapshot would lack tasks; the master orders it again.
        """
        match command:
            case TakeSnapshot(flush=True, tasks=tasks):
                if not await self._until(lambda: self.replica.has_all(tasks) and not self._ring.is_checking):
                    raise TransientError("the last rounds are not committed yet, or the replicas not compared")
            case OpenPin():
                await self._until(lambda: not self._ring.has_uncommitted)
            case _:
                pass

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        end_s = self._clock.monotonic() + _COMMIT_S
        while not is_so():
            if self._clock.monotonic() >= end_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _on_serving(self) -> None:
        self._ring.model_ready()
