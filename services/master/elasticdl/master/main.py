"""``python -m elasticdl.master.main``: runs one term of a job's master, configured by environment variables."""

from __future__ import annotations

import asyncio
import gc
import os
from dataclasses import replace

import structlog

from elasticdl.master import cluster
from elasticdl.master.core import State
from elasticdl.master.ledger_reads import read_ledgers
from elasticdl.master.service import Master, MasterOptions
from elasticdl.master.tensorboard.live import LiveEventFiles
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.errors import FencedError
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.names import MASTER, Incarnation, Service, new_incarnation
from elasticdl.shared.process import logs
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_FAULT, EXIT_REFUSED, EXIT_SUPERSEDED, exit_code, leave
from elasticdl.shared.process.operating_system import set_title
from elasticdl.shared.process.settings import MasterSettings, from_environment

_log = structlog.get_logger()


GATHER_S = 0.05
"""Seconds for which the master of a busy job lets records gather. The dispatch window holds tasks for much longer."""


async def serve(settings: MasterSettings, incarnation: Incarnation) -> State:
    """Run a master until its job is final; returns the job."""
    pods = None
    if settings.pod_templates:
        pods = cluster.pods_of(KubernetesApi.connect(), settings.job, settings.pod_templates)
    bus = await nats_bus.connect(settings.nats_url, settings.job, replace(settings.bus, gather_s=GATHER_S))
    clock = SystemClock(settings.clock_zero_s)
    envelopes = EnvelopeFactory(service=Service.MASTER, name=MASTER, incarnation=incarnation, clock=clock)
    heartbeats = asyncio.create_task(send_heartbeats(bus.signals, envelopes, settings.heartbeat_interval_s))
    curves = LiveEventFiles(bus.log)
    try:
        master = Master(
            bus,
            clock,
            incarnation,
            read_ledgers,
            MasterOptions(
                heartbeat_timeout_s=settings.heartbeat_timeout_s,
                heartbeat_interval_s=settings.heartbeat_interval_s,
                snapshot_records=settings.core_snapshot_records,
                return_deliveries=settings.return_deliveries,
                pods=pods,
            ),
        )
        gc.freeze()  # Modules are permanent: a full collection without them takes 5 ms instead of 30.
        curves.begin()
        state = await master.run()
        await curves.finish()
        _log.info("job ended", state=state.job_state.value)
        return state
    finally:
        curves.cancel()
        heartbeats.cancel()
        await bus.close()


def main() -> int:
    """Entry point.

    Returns:
        0 when the job is final, or on Kubernetes 1 when it has failed; otherwise see
        ``elasticdl.shared.process.exit_codes``, and the log has the reason.
    """
    incarnation = new_incarnation()
    settings = None
    try:
        settings = from_environment(MasterSettings, os.environ)
        if settings.pod_templates:
            cluster.end_on_sigterm()
        set_title(MASTER, settings.job)
        logs.configure(
            service=Service.MASTER,
            job=settings.job,
            pod=MASTER,
            incarnation=incarnation,
            level=settings.log_level,
        )
        state = asyncio.run(serve(settings, incarnation))
    except FencedError as error:
        # Another instance is the master; a launcher that does not know about it restarts this one.
        _log.error("another master has taken over", reason=str(error))
        code = EXIT_SUPERSEDED if settings and settings.pod_templates else EXIT_AWAY
        message = f"Another master has taken over: {error}"
    except Exception as error:  # The outermost frame: Python's own exit code would look like EXIT_REFUSED.
        code = exit_code(error)
        _log.error("the master can't continue", reason=str(error), exc_info=code == EXIT_FAULT)
        message = f"The master can't continue: {error}"
    else:
        if not settings.pod_templates:
            return 0  # A launcher reads the log.
        code, message = cluster.result_of(state)
    if settings and settings.pod_templates:
        if code == EXIT_REFUSED:
            code, note = cluster.end_job(KubernetesApi.connect, settings.job, settings.run)
            message = f"{note}\n{message}" if note else message
        cluster.write_termination_message(message)
    return code


if __name__ == "__main__":
    leave(main())
