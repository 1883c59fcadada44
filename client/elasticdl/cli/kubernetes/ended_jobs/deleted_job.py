"""A job whose objects were deleted: its event log is kept, so commands that read it still work."""

from __future__ import annotations

import asyncio

from elasticdl.cli.jobs.handle import Condition, JobNotFoundError
from elasticdl.cli.jobs.named import named
from elasticdl.cli.jobs.run_directory import INTERRUPTED
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.nats_route import reachable_url
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT


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
