"""``python -m elasticdl.ps.main``: one incarnation of one parameter server, configured by the environment."""

from __future__ import annotations

import os
import signal
import sys

import structlog

from elasticdl.ps.identity import PsIdentity
from elasticdl.ps.service import PsService
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.errors import FencedError, UserError
from elasticdl.shared.names import Incarnation, Service, new_incarnation
from elasticdl.shared.pod_instances import own_instance
from elasticdl.shared.process import logs
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.exit_codes import EXIT_FAULT, EXIT_REFUSED, exit_code, leave, reason_of
from elasticdl.shared.process.operating_system import set_title
from elasticdl.shared.process.settings import PsSettings, from_environment
from elasticdl.shared.storage import open_store
from elasticdl.shared.wire.server import ServerSettings

_log = structlog.get_logger()


def serve(settings: PsSettings, incarnation: Incarnation) -> None:
    """Run until SIGTERM or an error."""
    loop = LoopThread()
    bus = loop.call(nats_bus.connect(settings.nats_url, settings.job, settings.bus))
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
    service.start()
    service.wait()
    service.close()
    loop.call(bus.close(), timeout_s=5.0)
    loop.stop()


def main() -> int:
    """Entry point; the exit code says whether starting again makes sense."""
    try:
        settings = from_environment(PsSettings, os.environ)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    set_title(settings.pod, settings.job)
    incarnation = new_incarnation()
    logs.configure(
        service=Service.PS, job=settings.job, pod=settings.pod, incarnation=incarnation, level=settings.log_level
    )
    try:
        serve(settings, incarnation)
    except FencedError as error:
        _log.warning("another incarnation of this ps has taken over", reason=str(error))
        return 0
    except Exception as error:  # the process' outermost frame: Python's own exit code would look like a refusal
        code = exit_code(error)
        _log.error("the ps failed", reason=reason_of(error), exc_info=code == EXIT_FAULT)
        return code
    return 0


if __name__ == "__main__":
    leave(main())
