"""The master's own pod on Kubernetes: which pods it may create, and how it reports its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.master.core import State
from elasticdl.shared.errors import file_errors
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, owner_reference
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.process.exit_codes import EXIT_REFUSED


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
