"""The objects of a job that continues, from those of its former run."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from elasticdl.cli.kubernetes.manifests.job_objects import RETRIES
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, JOB, SECRET, Kind, Manifest
from elasticdl.shared.kubernetes.names import SUBMISSION_FILE
from elasticdl.shared.kubernetes.pod_manifests import raise_memory
from elasticdl.shared.process.settings import variable

_JOB_FIELDS = ("ttlSecondsAfterFinished", "podReplacementPolicy", "template")
"""What stays."""
_CONTROLLER_LABELS = ("controller-uid", "job-name")
"""What Kubernetes adds to the labels of a Job's pods, with and without a prefix."""


def next_job(former: Manifest, run: str, *, raises_memory: bool = False) -> Manifest:
    """The Job of the next run, suspended."""
    spec = deepcopy({name: former["spec"][name] for name in _JOB_FIELDS if name in former["spec"]})
    metadata = spec["template"].get("metadata", {})
    metadata["labels"] = {
        name: value
        for name, value in metadata.get("labels", {}).items()
        if name.rpartition("/")[2] not in _CONTROLLER_LABELS
    }
    for container in _containers(spec["template"]):
        if raises_memory:
            raise_memory(container)
        for each in container.get("env", ()):
            if each["name"] == variable("run"):
                each["value"] = run
    job = _object(JOB, former)
    if owners := former["metadata"].get("ownerReferences"):
        job["metadata"]["ownerReferences"] = owners
    return {**job, "spec": {"suspend": True, "backoffLimit": RETRIES, **spec}}


def next_config_map(former: Manifest, submission: str) -> Manifest:
    """The ConfigMap of the next run."""
    data = {**former.get("data", {}), SUBMISSION_FILE: submission}
    return {**_object(CONFIG_MAP, former), "data": data, "binaryData": former.get("binaryData") or {}}


def next_secret(former: Manifest) -> Manifest:
    """The Secret of the next run: that of the former one."""
    return {**_object(SECRET, former), "type": "Opaque", "data": former.get("data") or {}}


def _object(kind: Kind, former: Manifest) -> Manifest:
    metadata = {name: former["metadata"][name] for name in ("name", "namespace", "labels")}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _containers(template: Manifest) -> Iterator[Manifest]:
    spec = template["spec"]
    yield from (*spec.get("initContainers", ()), *spec["containers"])
