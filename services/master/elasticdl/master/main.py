"""``python -m elasticdl.master.main``: runs one term of a job's master, configured by environment variables."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from elasticdl.master.core import State
from elasticdl.master.outbox import read_ledgers
from elasticdl.master.service import Master, MasterOptions
from elasticdl.master.tensorboard.live import LiveEventFiles
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.errors import FencedError, file_errors
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_failed
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, owner_reference, write_message
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import MASTER, Incarnation, JobId, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.entry import log_failure, run_service
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED, EXIT_SUPERSEDED, leave
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.operating_system import end_on_sigterm
from elasticdl.shared.process.settings import MasterSettings

_log = get_logger()


GATHER_S = 0.05
"""Seconds for which the master of a busy job lets records gather. The dispatch window holds tasks for much longer."""


async def serve(settings: MasterSettings, incarnation: Incarnation) -> State:
    """Run a master until its job is final; returns the job."""
    pods = None
    if settings.pod_templates:
        pods = pods_of(KubernetesApi.connect(), settings.job, settings.pod_templates)
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
        code, message = result_of(state) if settings.pod_templates else (0, "")  # A launcher reads the log.
    if settings.pod_templates:
        if code == EXIT_REFUSED:
            code, note = end_failed(KubernetesApi.connect, settings.job, settings.run, code)
            message = f"{note}\n{message}" if note else message
        write_message(message)
    return code


def main() -> int:
    """Entry point; returns the exit code."""
    return run_service(Service.MASTER, MasterSettings, run)


def pods_of(api: KubernetesApi, job: JobId, templates_file: str) -> Callable[[Incarnation], KubernetesPods]:
    """How to get the pods of a run of a job."""
    with file_errors(f"The pod templates {templates_file} can't be read"):
        templates = PodTemplates.from_json(Path(templates_file).read_text())
    owner = owner_reference(api.get(kinds.JOB, object_name(job)))
    return lambda run: KubernetesPods(api, ClusterJob(job=job, run=run, owner=owner, templates=templates))


def result_of(state: State) -> tuple[int, str]:
    """The exit code of the master of a job that has ended, and its termination message."""
    if state.job_state is JobState.FAILED:
        message = state.failure.message if state.failure else ""
        return EXIT_REFUSED, f"The job has failed.\n{message}".rstrip()
    if state.job_state is JobState.STOPPED:
        reason = f" ({state.stop_reason})" if state.stop_reason else ""
        return 0, f"The job was stopped{reason}. To continue: elasticdl resume {state.job.job}"
    return 0, f"The job has succeeded.{_achieved(state)}"


def _achieved(state: State) -> str:
    """What a job without training has found or written, as a further line; else nothing."""
    if state.spec is None or state.spec.kind.trains:
        return ""
    if state.spec.prediction:
        return f"\n{state.prediction.records:,} predictions are in {state.spec.output}."
    results = [each.results for each in state.evaluations[-1:]]  # Empty if the log was lost.
    return "".join(f"\n{name}: {value:.6g}" for each in results for name, value in each.items())


if __name__ == "__main__":
    leave(main())
