"""Names and labels of a job's objects on Kubernetes, and of what its namespace provides (ADR 24)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from elasticdl.shared.names import JobId, PodName, Service

NAMESPACE_OBJECT: Final = "elasticdl"
"""Name of the Secret and of the ConfigMap that a namespace provides for all jobs."""
SERVICE_ACCOUNT: Final = "elasticdl-master"
PRIORITY_HIGH: Final = "elasticdl-high"
PRIORITY_LOW: Final = "elasticdl-low"

JOB_FOLDER: Final = "/elasticdl/job"
"""Where the pod of the master has ``SUBMISSION_FILE`` and ``PODS_FILE``."""
MODEL_FOLDER: Final = "/elasticdl/model"
"""Where ``submit`` and workers have the model file and the modules beside it."""
SUBMISSION_FILE: Final = "submission.json"
PODS_FILE: Final = "pods.json"
"""A ``PodTemplates``."""

PREPARE_CONTAINER: Final = "prepare"
SUBMIT_CONTAINER: Final = "submit"
"""The init container of the master's pod. The main container of every pod is named after its service."""

ERROR_PREFIX: Final = "Error: "
"""How the line in the log of the container ``submit`` begins that says why it has failed."""
WAITING_PREFIX: Final = "Waiting: "
"""How the line in the log of the container ``prepare`` begins that says what it waits for."""

NAME_LABEL: Final = "app.kubernetes.io/name"
JOB_LABEL: Final = "app.kubernetes.io/instance"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
POD_LABEL: Final = "elasticdl.org/pod"
ORDER_LABEL: Final = "elasticdl.org/order"

MEMORY_RAISES: Final = "elasticdl.org/memory-raises"
"""Annotation of a pod: how often pods of its name ran out of memory."""
TRAINING_JOB_LABEL: Final = "elasticdl.org/training-job"
"""Label of a Job: the name of the TrainingJob that it was created for."""
QUEUES_LABEL: Final = "elasticdl.org/queues"
"""Label, with the value true, of the ConfigMap in the controller's namespace that has the queues and their quotas."""
WEIGHT: Final = "elasticdl.org/weight"
"""Annotation of a PriorityClass: the part of the spare room that its jobs get, relative to others; without it 1."""
SUSPENDED: Final = "elasticdl.org/suspended"
"""Annotation of a Job: why the controller has stopped it. It resumes the job when there is room."""
NOTE: Final = "elasticdl.org/note"
"""Annotation of a pod: what users are told about it when it is created."""

_APPLICATION = "elasticdl"
_POD_FOLDERS = re.compile(rf"(?<![\w./-])(?:{JOB_FOLDER}|{MODEL_FOLDER})/")


def without_pod_folders(text: str) -> str:
    """A text for users, who know their files and not the folders of a pod that hold them."""
    return _POD_FOLDERS.sub("", text)


def object_name(job: JobId) -> str:
    """The name of a job's Job, ConfigMap and Secret."""
    return str(job)


def pod_object_name(job: JobId, pod: PodName, creation_seq: int) -> str:
    """The name of the Kubernetes pod that a command of the master creates: ``JOB-worker-0-17``."""
    return f"{job}-{pod}-{creation_seq}"


def labels(job: JobId, component: Service | None = None) -> dict[str, str]:
    """The labels of an object of a job; ``component``: the service that the object belongs to; None: all of them."""
    found = {NAME_LABEL: _APPLICATION, JOB_LABEL: str(job), MANAGED_BY_LABEL: _APPLICATION}
    return found | ({COMPONENT_LABEL: component.value} if component else {})


def pod_labels(job: JobId, pod: PodName, service: Service, creation_seq: int) -> dict[str, str]:
    """The labels of a worker's or ps' pod."""
    return labels(job, service) | {POD_LABEL: str(pod), ORDER_LABEL: str(creation_seq)}


def selector(wanted: Mapping[str, str], *present: str) -> str:
    """A label selector for objects that have these values, and further labels of any value."""
    return ",".join([*(f"{label}={value}" for label, value in wanted.items()), *present])
