"""How a process of the master's pod ends its job for good, which its exit code alone can't.

The Job starts a master again whenever one ends without success. A ``podFailurePolicy`` could tell by the exit code that
the job has failed, but with one Kubernetes starts no master while the former one is on a lost node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from elasticdl.shared.errors import ElasticDLError, TransientError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_pods import remove_job_pods, run_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.process.exit_codes import EXIT_AWAY
from elasticdl.shared.process.logs import get_logger

_log = get_logger()
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label of a Job's pods."""
_TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that their Job has not counted yet."""


def end_run(api: KubernetesApi, job: JobId, run: Incarnation) -> None:
    """End the workers and ps of a job, and let its Job fail as soon as the pod of this process has failed.

    Args:
        run: the run that has failed. A Job of a later run stays as it is.
    """
    name = object_name(job)
    if run_of(api.get(kinds.JOB, name)["spec"]["template"]) != run:
        return
    remove_job_pods(api, job)
    # The pods first: one that is counted in between counts twice, and then one more master starts and ends likewise.
    pods = api.list(kinds.POD, labels=f"{JOB_NAME}={name}").items
    # Not 0: a Job that has more failures than its limit stops this pod before it has left exit code and message.
    api.patch(kinds.JOB, name, {"spec": {"backoffLimit": failures(api.get(kinds.JOB, name).get("status", {}), pods)}})


def end_failed(
    connect: Callable[[], KubernetesApi],
    job: JobId,
    run: Incarnation,
    code: int,
    is_spared: Callable[[KubernetesApi], bool] = lambda _api: False,
) -> tuple[int, str]:
    """End a job that has failed, or that this process can't continue.

    Args:
        code: the exit code of this process, which says that the job has failed.
        is_spared: whether the job continues all the same.

    Returns:
        The exit code of this process, and a remark for its termination message. While the API server can't be reached,
        or if the job is spared, Kubernetes starts the pod again.
    """
    try:
        with contextlib.closing(connect()) as api:
            if is_spared(api):
                return EXIT_AWAY, ""
            end_run(api, job, run)
    except ElasticDLError as error:
        _log.warning("the Job can't be ended", reason=str(error))
        note = f"The Job can't be ended, so Kubernetes starts this pod again: {error}"
        return EXIT_AWAY if isinstance(error, TransientError) else code, note
    return code, ""


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
