"""How a process of the master's pod ends its job for good, which its exit code alone can't.

The Job starts a master again whenever one ends without success. A ``podFailurePolicy`` could tell by the exit code that
the job has failed, but with one Kubernetes starts no master while the former one is on a lost node.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_pods import remove_job_pods, run_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.names import Incarnation, JobId

JOB_NAME = "batch.kubernetes.io/job-name"
"""Label of a Job's pods."""
_TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that their Job has not counted yet."""


def end_run(api: KubernetesApi, job: JobId, run: Incarnation) -> None:
    """End the workers and ps of a job, and let its Job fail as soon as the pod of this process has failed.

    Args:
        run: the run that has failed. A Job of a later run stays as it is.

    Raises:
        TransientError, PermanentError: the API server can't be reached, or refuses.
    """
    name = object_name(job)
    if run_of(api.get(kinds.JOB, name)["spec"]["template"]) != run:
        return
    remove_job_pods(api, job)
    # The pods first: one that is counted in between counts twice, and then one more master starts and ends likewise.
    pods = api.list(kinds.POD, labels=f"{JOB_NAME}={name}").items
    # Not 0: a Job that has more failures than its limit stops this pod before it has left exit code and message.
    api.patch(kinds.JOB, name, {"spec": {"backoffLimit": failures(api.get(kinds.JOB, name).get("status", {}), pods)}})


def failures(status: Manifest, pods: Sequence[Manifest]) -> int:
    """How many pods of a Job have failed, those included that its controller has not counted yet.

    The controller puts a pod into ``uncountedTerminatedPods``, removes the pod's finalizer, and then counts it. It
    counts a pod that is to be deleted, too.

    Args:
        pods: of the Job, as they were before.
    """
    uncounted = set(status.get("uncountedTerminatedPods", {}).get("failed") or ())
    for pod in pods:
        metadata, phase = pod["metadata"], pod.get("status", {}).get("phase")
        has_failed = phase == "Failed" or ("deletionTimestamp" in metadata and phase != "Succeeded")
        if has_failed and _TRACKING in (metadata.get("finalizers") or ()):
            uncounted.add(metadata["uid"])
    return int(status.get("failed", 0)) + len(uncounted)
