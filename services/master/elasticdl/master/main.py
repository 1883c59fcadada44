"""``python -m elasticdl.master.main``: runs one term of a job's master, configured by environment variables."""

from __future__ import annotations

import asyncio
import gc
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
from elasticdl.shared.kubernetes.job_end import end_failed
from elasticdl.shared.kubernetes.termination import write_message
from elasticdl.shared.names import MASTER, Incarnation, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.entry import log_failure, run_service
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED, EXIT_SUPERSEDED, leave
from elasticdl.shared.process.operating_system import end_on_sigterm
from elasticdl.shared.process.settings import MasterSettings

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
    sending = send_heartbeats(bus.signals, envelopes, settings.heartbeat_interval_s, metrics_port=settings.metrics_port)
    heartbeats = asyncio.create_task(sending)
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


def run(settings: MasterSettings, incarnation: Incarnation) -> int:
    """Run a master.

    Returns:
        0 when the job is final, or on Kubernetes 1 when it has failed; otherwise see
        ``elasticdl.shared.process.exit_codes``, and the log has the reason.
    """
    if settings.pod_templates:
        end_on_sigterm()
    try:
        state = asyncio.run(serve(settings, incarnation))
    except FencedError as error:
        # Another instance is the master; a launcher that does not know about it restarts this one.
        _log.error("another master has taken over", reason=str(error))
        code = EXIT_SUPERSEDED if settings.pod_templates else EXIT_AWAY
        message = f"Another master has taken over: {error}"
    except Exception as error:
        code, message = log_failure(Service.MASTER, error), f"The master can't continue: {error}"
    else:
        code, message = cluster.result_of(state) if settings.pod_templates else (0, "")  # A launcher reads the log.
    if settings.pod_templates:
        if code == EXIT_REFUSED:
            code, note = end_failed(KubernetesApi.connect, settings.job, settings.run, code)
            message = f"{note}\n{message}" if note else message
        write_message(message)
    return code


def main() -> int:
    """Entry point; returns the exit code."""
    return run_service(Service.MASTER, MasterSettings, run)


if __name__ == "__main__":
    leave(main())
