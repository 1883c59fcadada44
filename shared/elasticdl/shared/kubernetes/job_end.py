"""How a process of the master's pod ends its job for good, which its exit code alone can't.

The Job starts a master again whenever one ends without success. A ``podFailurePolicy`` could tell by the exit code that
the job has failed, but with one Kubernetes starts no master while the former one is on a lost node.
"""

from __future__ import annotations

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_pods import remove_job_pods, run_of
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.names import Incarnation, JobId


def end_run(api: KubernetesApi, job: JobId, run: Incarnation) -> None:
    """End the workers and ps of a job, and let its Job fail as soon as the pod of this process has failed.

    Args:
        api: the cluster, and the namespace of the job.
        job: the job.
        run: the run that has failed. A Job of a later run stays as it is.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses.
    """
    name = object_name(job)
    found = api.get(kinds.JOB, name)
    if run_of(found["spec"]["template"]) != run:
        return
    remove_job_pods(api, job)
    # Not 0: a Job that has more failures than its limit stops this pod before it has left exit code and message.
    api.patch(kinds.JOB, name, {"spec": {"backoffLimit": found.get("status", {}).get("failed", 0)}})
