"""A ps as a member of its job: heartbeats, the watch on the key-value store, and the master's orders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import psutil

from elasticdl.ps.controller.events import KeyChanged
from elasticdl.ps.identity import PsIdentity
from elasticdl.ps.shard.core import PsCore
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.process.envelopes import EnvelopeFactory


class Membership:
    """Coroutines on the bus' loop, from ``join`` to ``leave``."""

    def __init__(
        self, identity: PsIdentity, core: PsCore, bus: Bus, loop: LoopThread, envelopes: EnvelopeFactory
    ) -> None:
        self._identity = identity
        self._core = core
        self._bus = bus
        self._loop = loop
        self._envelopes = envelopes
        self._tasks: list[Future[None]] = []

    def join(
        self,
        take_order: Callable[[Command, str], Awaitable[None]],
        post: Callable[[KeyChanged], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Begin; returns when orders are received.

        Args:
            take_order: accepts an order and its cause, or raises the reason for refusing it.
            failed: receives the error that ended the watch or the heartbeats. A ps that can't learn of its successor,
                or of a new placement, must end.
        """
        interval_s, port = self._identity.heartbeat_interval_s, self._identity.metrics_port
        sending = send_heartbeats(self._bus.signals, self._envelopes, interval_s, self._metrics, metrics_port=port)
        self._tasks.append(self._loop.spawn_endless(sending, failed))
        self._loop.call(self._bus.signals.serve_orders(self._identity.ps, take_order))
        self._tasks.append(self._loop.spawn_endless(self._watch(post), failed))

    def leave(self) -> None:
        """Send no more heartbeats, and end the watch."""
        for task in self._tasks:
            task.cancel()

    async def _watch(self, post: Callable[[KeyChanged], None]) -> None:
        async for name, entry in self._bus.registers.watch():
            post(KeyChanged(name=name, entry=entry))

    def _metrics(self) -> dict[str, float]:
        shard = self._core.shard
        return {
            "step": float(shard.least_step if shard else 0),
            "rows": float(shard.rows if shard else 0),
            "model_bytes": float(shard.nbytes if shard else 0),
            "rss_bytes": float(psutil.Process().memory_info().rss),
        }
