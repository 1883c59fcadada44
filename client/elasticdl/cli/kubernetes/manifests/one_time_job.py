"""A Job with one pod, which does something for a job beside its master, and is deleted afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from elasticdl.cli.kubernetes.manifests.job_objects import owned
from elasticdl.cli.kubernetes.manifests.templates import TOKEN_VOLUME
from elasticdl.shared.kubernetes.kinds import JOB, Manifest
from elasticdl.shared.kubernetes.names import JOB_LABEL, MANAGED_BY_LABEL, NAME_LABEL, SUBMIT_CONTAINER

KEEP_S = 600
"""Seconds after which Kubernetes deletes a Job whose client could not."""
_MASTER_FIELDS = ("initContainers", "serviceAccountName", "serviceAccount")


def beside_job(job: Manifest, purpose: str, suffix: str, arguments: Sequence[str]) -> Manifest:
    """A Job that runs a module in the image of the workers, with the model file and the secrets of a job."""
    name, template = job["metadata"]["name"], deepcopy(job["spec"]["template"]["spec"])
    (container,) = (each for each in template["initContainers"] if each["name"] == SUBMIT_CONTAINER)
    kept = {each: value for each, value in template.items() if each not in _MASTER_FIELDS}
    pod = {
        **kept,
        "volumes": [each for each in template["volumes"] if each["name"] != TOKEN_VOLUME],
        "automountServiceAccountToken": False,
        "containers": [{**container, "name": purpose, "args": list(arguments)}],
    }
    return owned(one_time_job(f"{name}-{purpose}-{suffix}", job["metadata"]["namespace"], purpose, pod), job)


def one_time_job(name: str, namespace: str, purpose: str, pod: Manifest) -> Manifest:
    """A Job that runs a pod once."""
    # Not the name of the pods of jobs, which commands and masters list.
    labels = {NAME_LABEL: f"elasticdl-{purpose}", JOB_LABEL: name, MANAGED_BY_LABEL: "elasticdl"}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.name,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEEP_S,
            "template": {"metadata": {"labels": labels}, "spec": {**pod, "restartPolicy": "Never"}},
        },
    }
