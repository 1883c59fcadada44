"""Creates the objects of a job, all of them or none, and its first worker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest, owned
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import JOB, Manifest
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, owner_reference, pod_manifest
from elasticdl.shared.names import Service, pod_name
from elasticdl.shared.pods.ports import EARLY_SEQ
from elasticdl.shared.storage.atomic import replace_text


def create_job(api: KubernetesApi, manifest: JobManifest) -> None:
    """Create the objects of a job, start it, and create the pods without which it can't train.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses. Nothing is left behind.
    """
    job, *belongings = manifest.all(api.namespace)
    created = create_objects(api, job, belongings)
    for pod in early_pods(manifest, created):
        with contextlib.suppress(ElasticDLError):  # The master creates what is missing, and says why if it can't.
            api.create(pod)


def early_pods(manifest: JobManifest, job: Manifest) -> list[Manifest]:
    """The pods of the first worker and of the ps. They get places and import what they need while the job is planned.

    No further workers: a job needs a master, its ps and one worker to train at all. Further workers could take the
    places of master and ps, and would keep those of other jobs idle.
    """
    cluster_job = ClusterJob(
        job=manifest.settings.job, run=manifest.settings.run, owner=owner_reference(job), templates=manifest.templates
    )
    pods = [(Service.WORKER, 0), *((Service.PS, number) for number in range(manifest.ps_pods))]
    return [pod_manifest(cluster_job, pod_name(service, number), service, EARLY_SEQ) for service, number in pods]


def create_objects(api: KubernetesApi, job: Manifest, belongings: Sequence[Manifest]) -> Manifest:
    """Create a Job and the objects that belong to it, and start it.

    The Job is suspended until the objects that its pod mounts exist. They belong to it, so deleting it deletes them.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses. Nothing is left behind.
    """
    created = api.create(job)
    name = created["metadata"]["name"]
    try:
        for each in belongings:
            api.create(owned(each, created))
        api.patch(JOB, name, {"spec": {"suspend": False}})
    except BaseException:
        with contextlib.suppress(ElasticDLError):
            api.delete(JOB, name)
        raise
    return created


def objects_text(objects: Sequence[Manifest]) -> str:
    """The objects as YAML documents, with files as blocks of lines. The Job is not suspended."""
    import yaml  # Comes with the package kubernetes.

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """A dumper of its own, because representers are added to classes."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    copies = json.loads(json.dumps(objects))
    for each in copies:
        each.get("spec", {}).pop("suspend", None)
    return str(yaml.dump_all(copies, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def write_objects(objects: Sequence[Manifest], file: Path) -> None:
    """Write the objects to a file that only its owner can read: it holds the job's Secret."""
    replace_text(file, objects_text(objects), mode=0o600)
