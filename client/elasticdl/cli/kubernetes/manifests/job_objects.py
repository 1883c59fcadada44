"""The three objects that the client creates for a job: Job, ConfigMap and Secret."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from elasticdl.cli.kubernetes.manifests.templates import (
    TOKEN_VOLUME,
    JobSettings,
    PodSettings,
    master_template,
    service_template,
)
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, JOB, SECRET, TRAINING_JOB, Kind, Manifest
from elasticdl.shared.kubernetes.names import (
    JOB_LABEL,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    PODS_FILE,
    SUBMISSION_FILE,
    SUBMIT_CONTAINER,
    TRAINING_JOB_LABEL,
    labels,
    object_name,
)
from elasticdl.shared.kubernetes.pod_manifests import owner_reference
from elasticdl.shared.kubernetes.templates import PodTemplates, WorkerPriority
from elasticdl.shared.names import Service
from elasticdl.shared.process.settings import variable

RETRIES = 1_000_000
"""Masters that may end without a result. One that ends the job lowers it, see ``job_end``."""
FAILED_CODES = (1, 2)
"""Exit codes of a job that failed, and of wrong input. After any other, Kubernetes starts the next master."""
REPLACEMENT_POLICY = "TerminatingOrFailed"
"""Start the next master when the former one is to be deleted: on a lost node it never fails. The log fences it."""
KEEP_S = 600
"""Seconds after which Kubernetes deletes a Job whose client could not."""
_MASTER_FIELDS = ("initContainers", "serviceAccountName", "serviceAccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobManifest:
    """What the objects of a job contain.

    Attributes:
        worker_priority: priority classes of the workers; None: that of their template.
        spare_priority: that of spare workers; empty: as other workers.
        model: file name -> content of the model file and the modules beside it.
        training_job: the TrainingJob that the Job belongs to; None: a command created it.
    """

    settings: JobSettings
    master: PodSettings
    worker: PodSettings
    ps: PodSettings
    workers: int
    ps_pods: int
    worker_priority: WorkerPriority | None
    image_pull_s: float
    submission: str
    model: Mapping[str, bytes]
    secrets: Mapping[str, str]
    keep_finished_s: int
    training_job: Manifest | None = None
    spare_priority: str = ""

    @property
    def templates(self) -> PodTemplates:
        """The templates of workers and ps."""
        return PodTemplates(
            worker=service_template(self.settings, self.worker),
            ps=service_template(self.settings, self.ps),
            workers=self.workers,
            worker_priority=self.worker_priority,
            spare_priority=self.spare_priority,
            image_pull_s=self.image_pull_s,
        )

    def job(self, namespace: str) -> Manifest:
        """The Job, suspended: its pod needs the other two objects, which belong to it."""
        pod = master_template(self.settings, self.master, self.worker)
        own = labels(self.settings.job, Service.MASTER)
        pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **own}
        job = self._object(JOB, namespace)
        if self.training_job is not None:
            job["metadata"]["labels"][TRAINING_JOB_LABEL] = self.training_job["metadata"]["name"]
            job["metadata"]["ownerReferences"] = [owner_reference(self.training_job, TRAINING_JOB)]
        return {
            **job,
            "spec": {
                "suspend": True,
                "backoffLimit": RETRIES,
                "ttlSecondsAfterFinished": self.keep_finished_s,
                "podReplacementPolicy": REPLACEMENT_POLICY,
                "template": pod,
            },
        }

    def config_map(self, namespace: str) -> Manifest:
        """The ConfigMap with ``submission.json``, ``pods.json`` and the model."""
        keys = {name: key for key, name in self.settings.model_files.items()}
        texts = {SUBMISSION_FILE: self.submission, PODS_FILE: self.templates.to_json()}
        binaries = {}
        for name, content in self.model.items():
            try:
                texts[keys[name]] = content.decode()
            except UnicodeDecodeError:
                binaries[keys[name]] = base64.b64encode(content).decode()
        return {**self._object(CONFIG_MAP, namespace), "data": texts, "binaryData": binaries}

    def secret(self, namespace: str) -> Manifest:
        """The Secret: all its keys are environment variables of the job's pods."""
        return {**self._object(SECRET, namespace), "type": "Opaque", "stringData": dict(self.secrets)}

    def all(self, namespace: str) -> list[Manifest]:
        """The three objects."""
        return [self.job(namespace), self.config_map(namespace), self.secret(namespace)]

    def _object(self, kind: Kind, namespace: str) -> Manifest:
        job = self.settings.job
        metadata = {"name": object_name(job), "namespace": namespace, "labels": labels(job)}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def secret_variables(token: str, nats_url: str) -> dict[str, str]:
    """The environment variables of a job's Secret; an empty URL leaves that of the namespace."""
    return {variable("token"): token, **({variable("nats_url"): nats_url} if nats_url else {})}


def owned(manifest: Manifest, owner: Manifest) -> Manifest:
    """An object that is deleted with its owner, a Job as the API server returned it."""
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner_reference(owner)]}}


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
