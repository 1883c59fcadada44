"""Creates the objects of a job, all of them or none."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from elasticdl.cli.kubernetes.manifests.job_objects import JobManifest, owned
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import JOB, Manifest


def create_job(api: KubernetesApi, manifest: JobManifest) -> None:
    """Create the objects of a job, and start it.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses. Nothing is left behind.
    """
    job, *belongings = manifest.all(api.namespace)
    create_objects(api, job, belongings)


def create_objects(api: KubernetesApi, job: Manifest, belongings: Sequence[Manifest]) -> None:
    """Create a Job and the objects that belong to it, and start it.

    The Job is suspended until the objects that its pod mounts exist. They belong to it, so deleting it deletes them.

    Args:
        api: the cluster, and the namespace.
        job: the Job, suspended.
        belongings: ConfigMap and Secret.

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
