"""The leader's second role: it serves its replica as ps-0, under a new incarnation in each generation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elasticdl.ps.service import HostedReplica, PsIdentity, PsService
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import FencedError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.names import SERVED_REPLICA, Incarnation, PodInstance, PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.settings import WorkerSettings
from elasticdl.shared.storage import ObjectStore
from elasticdl.shared.wire.server import ServerSettings
from elasticdl.worker.replica.membership import incarnation_of
from elasticdl.worker.ring.ports import Generation

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A worker of a ring, and what is around it."""

    settings: WorkerSettings
    incarnation: Incarnation
    instance: PodInstance
    spec: JobSpec
    bus: Bus
    loop: LoopThread
    store: ObjectStore
    clock: Clock


class Serving:
    """See ``ring.ports.Leading``. One incarnation after the other: the former one has ended before the next starts.

    Args:
        failed: takes an error that ends this process.
    """

    def __init__(
        self,
        process: Surroundings,
        hosted: HostedReplica,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._process = process
        self._hosted = hosted
        self._failed = failed
        self._orders: queue.SimpleQueue[Generation | threading.Event | None] = queue.SimpleQueue()
        """Generations to lead, events to set when nothing is served any more, or None: the end."""
        self._service: PsService | None = None
        self._running: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="ps-0", daemon=True)
        self._thread.start()

    def lead(self, generation: Generation) -> None:
        """Serve under the incarnation of this generation."""
        self._orders.put(generation)

    def follow(self, generation: Generation) -> None:  # noqa: ARG002  Another member leads.
        """Stop serving, and wait until that is done: another state may be loaded then."""
        done = threading.Event()
        self._orders.put(done)
        done.wait()

    def credits(self, generation: Generation) -> Mapping[PodName, Incarnation]:
        """The incarnation that credits what a generation commits."""
        return {SERVED_REPLICA: incarnation_of(generation)}

    def close(self) -> None:
        """Stop serving, and wait until that is done."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            orders = [self._orders.get()]
            while not self._orders.empty():
                orders.append(self._orders.get())
            try:
                self._end()
                if None not in orders and isinstance(orders[-1], Generation):  # Earlier ones are over.
                    self._begin(orders[-1])
            except BaseException as error:  # The outermost frame of the thread.
                self._failed(error)
            finally:
                for order in orders:
                    if isinstance(order, threading.Event):
                        order.set()
            if None in orders:
                return

    def _begin(self, generation: Generation) -> None:
        process, settings = self._process, self._process.settings
        identity = PsIdentity(
            ps=SERVED_REPLICA,
            incarnation=incarnation_of(generation),
            run=settings.run,
            instance=process.instance,
            token=settings.token,
            advertised_host=settings.advertised_host,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            wire=ServerSettings(host=settings.host),
        )
        service = self._service = PsService(
            identity,
            spec=process.spec,
            bus=process.bus,
            loop=process.loop,
            store=process.store,
            clock=process.clock,
            hosted=self._hosted,
        )
        self._running = threading.Thread(target=self._serve, args=(service,), name="ps-0 service", daemon=True)
        self._running.start()

    def _serve(self, service: PsService) -> None:
        try:
            service.start()
            service.wait()
        except FencedError as error:
            _log.info("another member of the ring serves the model now", reason=str(error))
        except BaseException as error:
            self._failed(error)

    def _end(self) -> None:
        service, running = self._service, self._running
        self._service = self._running = None
        if service is not None and running is not None:
            service.ask_to_end()
            running.join()
            service.close()
            self._hosted.core.observe(None)
