"""The workers and parameter servers of a job, for a process that does not supervise them."""

from __future__ import annotations

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import ORDER_LABEL, POD_LABEL, labels, selector
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.names import JobId
from elasticdl.shared.process.settings import variable


def job_pods(api: KubernetesApi, job: JobId) -> tuple[Manifest, ...]:
    """All workers and ps of a job, ended ones included."""
    return api.list(kinds.POD, labels=selector(labels(job), POD_LABEL)).items


def creation_seq_of(pod: Manifest) -> int:
    """``PodStatus.creation_seq`` of a worker's or ps' pod; ``EARLY_SEQ``, which is 0, before there was a master."""
    return int(pod["metadata"]["labels"][ORDER_LABEL])


def run_of(pod: Manifest) -> str:
    """The run of a job that a pod, or a pod template, has in its environment; empty: it has none."""
    variables = (each for container in pod["spec"]["containers"] for each in container.get("env", ()))
    return next((str(each.get("value", "")) for each in variables if each["name"] == variable("run")), "")


def remove_job_pods(api: KubernetesApi, job: JobId) -> None:
    """End the workers and ps of a job that has no master any more. Ended ones stay, so that their logs can be read."""
    for pod in job_pods(api, job):
        if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            continue
        try:
            api.delete(kinds.POD, pod["metadata"]["name"], uid=pod["metadata"]["uid"])
        except ApiRefusedError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
