"""The master's own pod on Kubernetes: which pods it may create, and how it reports its end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from elasticdl.master.core import State
from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_run
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.kubernetes.pod_manifests import TERMINATION_MESSAGE, ClusterJob, owner_reference
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED

MESSAGE_BYTES_MAX = 4096
"""The most that Kubernetes keeps of a termination message."""
_SIGNAL_OFFSET = 128

_log = structlog.get_logger()


def pods_of(api: KubernetesApi, job: JobId, templates_file: str) -> Callable[[Incarnation], KubernetesPods]:
    """How to get the pods of a run of a job.

    Raises:
        UserError: the file can't be read.
        ElasticDLError: the API server can't be reached, or has no batch Job of this job.
    """
    try:
        templates = PodTemplates.from_json(Path(templates_file).read_text())
    except OSError as error:
        raise UserError(f"The pod templates can't be read: {error}") from error
    owner = owner_reference(api.get(kinds.JOB, object_name(job)))
    return lambda run: KubernetesPods(api, ClusterJob(job=job, run=run, owner=owner, templates=templates))


def end_on_sigterm() -> None:
    """Exit at once on SIGTERM: a successor continues from the log."""
    signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(_SIGNAL_OFFSET + number))


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
    results = [each.results for each in state.evaluations[-1:]]  # There is none if the log was lost.
    return "".join(f"\n{name}: {value:.6g}" for each in results for name, value in each.items())


def end_job(connect: Callable[[], KubernetesApi], job: JobId, run: Incarnation) -> tuple[int, str]:
    """End the Job, the workers and the ps of a job that has failed, or that the master can't continue.

    Returns:
        The exit code of the master, and a remark for its termination message. While the API server can't be reached, or
        refuses, the next master tries again.
    """
    try:
        with contextlib.closing(connect()) as api:
            end_run(api, job, run)
    except ElasticDLError as error:
        _log.warning("the Job can't be ended", reason=str(error))
        note = f"The Job can't be ended, so Kubernetes starts the master again: {error}"
        return EXIT_AWAY if isinstance(error, TransientError) else EXIT_REFUSED, note
    return EXIT_REFUSED, ""


def write_termination_message(message: str, path: Path = Path(TERMINATION_MESSAGE)) -> None:
    """Write what ``kubectl describe`` shows of the master's end; of a longer message the beginning."""
    path.write_bytes(message.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore").encode())
