"""``python -m elasticdl.ps.main``: one incarnation of one parameter server, configured by the environment."""

from __future__ import annotations

import signal

from elasticdl.ps.service import PsIdentity, PsService
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.errors import FencedError
from elasticdl.shared.names import Incarnation, Service
from elasticdl.shared.pod_instances import own_instance
from elasticdl.shared.pods.early import wait_for_master
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.entry import run_service
from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.settings import PsSettings
from elasticdl.shared.storage import open_store
from elasticdl.shared.wire.server import ServerSettings

_log = get_logger()


def serve(settings: PsSettings, incarnation: Incarnation) -> int:
    """Run until SIGTERM, or until another incarnation has taken over; returns the exit code."""
    loop = LoopThread()
    bus = loop.call(nats_bus.connect(settings.nats_url, settings.job, settings.bus))
    if settings.master_wait_s:
        wait_for_master(bus.log, loop, settings.pod, settings.instance, settings.master_wait_s)
    spec = loop.call(read_spec(bus.log))
    service = PsService(
        PsIdentity(
            ps=settings.pod,
            incarnation=incarnation,
            run=settings.run,
            instance=settings.instance or own_instance(),
            token=settings.token,
            advertised_host=settings.advertised_host,
            memory_bytes_max=settings.memory_bytes_max,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            metrics_port=settings.metrics_port,
            wire=ServerSettings(host=settings.host, port=settings.port),
        ),
        spec=spec,
        bus=bus,
        loop=loop,
        store=open_store(spec.storage),
        clock=SystemClock(settings.clock_zero_s),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.ask_to_end())
    try:
        service.start()
        service.wait()
        service.close()
    except FencedError as error:
        _log.warning("another incarnation of this ps has taken over", reason=str(error))
        return 0
    loop.call(bus.close(), timeout_s=5.0)
    loop.stop()
    return 0


def main() -> int:
    """Entry point; the exit code says whether starting again makes sense."""
    return run_service(Service.PS, PsSettings, serve)


if __name__ == "__main__":
    leave(main())
