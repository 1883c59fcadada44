"""Finds jobs in a cluster, by id or by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from elasticdl.cli.jobs.handle import Condition, JobNotFoundError
from elasticdl.cli.jobs.run_directory import INTERRUPTED, named
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.nats_route import reachable_url
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import JOB, Manifest
from elasticdl.shared.kubernetes.names import MANAGED_BY_LABEL, NAME_LABEL, NAMESPACE_OBJECT, selector
from elasticdl.shared.names import JobId

NAMESPACE_VARIABLE = "ELASTICDL_NAMESPACE"
_ALL = selector({NAME_LABEL: "elasticdl", MANAGED_BY_LABEL: "elasticdl"})
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def has_cluster(environment: Mapping[str, str]) -> bool:
    """Whether this machine or pod is configured for a cluster. Asks no server."""
    file = Path("~/.kube/config").expanduser()
    return bool(environment.get("KUBECONFIG")) or file.exists() or _TOKEN.exists()


def connect(namespace: str) -> KubernetesApi:
    """Connect to the cluster; empty ``namespace``: that of the variable, else that of the kubeconfig."""
    return KubernetesApi.connect(namespace=namespace or os.environ.get(NAMESPACE_VARIABLE, ""))


def jobs_in(api: KubernetesApi) -> list[Manifest]:
    """The Jobs of a namespace, the oldest first."""
    found = api.list(JOB, labels=_ALL).items
    return sorted(found, key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"]))


def find_job(job: str, namespace: str) -> KubernetesJobHandle:
    """A job in the cluster. If its objects were deleted, commands still read its event log."""
    api = connect(namespace)
    try:
        return KubernetesJobHandle(api, find_in(api, job), is_default=not namespace)
    except JobNotFoundError:
        if found := find_deleted(api, job, is_default=not namespace):
            return found
        raise


def find_in(api: KubernetesApi, job: str) -> JobId:
    """The id of a job in a namespace; arguments and errors as of ``find_job``."""
    ids = [JobId(each["metadata"]["name"]) for each in jobs_in(api)]
    if found := named(job, ids):
        return found
    latest = f"The latest jobs there: {', '.join(reversed(ids[-5:]))}." if ids else "It holds no jobs."
    raise JobNotFoundError(f"there is no job {job!r} in namespace {api.namespace} of {api.server}", hint=latest)


class DeletedJobHandle(KubernetesJobHandle):
    """See ``JobHandle``. It has no pods."""

    def condition(self) -> Condition:
        """See ``JobHandle``."""
        return Condition(is_running=False, state=INTERRUPTED, interruption="its Kubernetes Job was deleted")

    def job_object(self) -> Manifest:
        """No such job exists. Raises ``JobNotFoundError``: always."""
        raise JobNotFoundError(
            f"the Kubernetes Job of {self.job} was deleted, and with it the settings of its pods and its model file",
            hint=f"To continue from its model: elasticdl train --initial_model={self.job}, and the flags of that job.",
        )


def find_deleted(api: KubernetesApi, job: str, *, is_default: bool) -> DeletedJobHandle | None:
    """Find a job without objects on a namespace's NATS server; None: it is not there, or the server is unreachable."""
    try:
        with reachable_url(api, NAMESPACE_OBJECT) as url:
            ids = asyncio.run(nats_bus.stored_jobs(url))
    except ElasticDLError:
        return None
    found = named(job, ids)
    return DeletedJobHandle(api, found, is_default=is_default) if found else None
