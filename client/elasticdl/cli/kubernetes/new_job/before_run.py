"""What the container ``prepare`` checks in the cluster before each master of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from elasticdl.cli.kubernetes.checks import master_rights_finding
from elasticdl.cli.kubernetes.condition import has_planned, memory_kills, refusal
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import JOB_NAME
from elasticdl.shared.kubernetes.job_pods import creation_seq_of, job_pods, run_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.kubernetes.pod_manifests import MEMORY_RAISE
from elasticdl.shared.kubernetes.quantities import format_bytes
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.pods.ports import EARLY_SEQ
from elasticdl.shared.storage import display, open_store

RIGHTS_POLL_S = 5.0
MEMORY_KILLS_MAX = 3
"""Masters in a row that may run out of memory."""


class SubmissionRefusedError(UserError):
    """The container ``submit`` of a former pod has refused the job."""


def wait_for_rights(api: KubernetesApi, say: Callable[[str], None], sleep: Callable[[float], object]) -> None:
    """Wait until the master may manage the pods of the job, and end its Job.

    It waits here, because each pod that ends for this stays until the Job is deleted.
    """
    said = ""
    while (found := master_rights_finding(api.is_allowed, api.namespace)).problem:
        text = f"{found.problem}. The job waits until it may.\n{found.remedy}"
        if text != said:
            say(text)
            said = text
        sleep(RIGHTS_POLL_S)


def masters_of(api: KubernetesApi, job: JobId, run: Incarnation) -> list[Manifest]:
    """The pods of the Job of a run."""
    return [pod for pod in api.list(kinds.POD, labels=f"{JOB_NAME}={object_name(job)}").items if run_of(pod) == run]


def check_memory(masters: Iterable[Manifest], job: JobId) -> None:
    """Check that the former masters had enough memory. The next one gets as much: a Job's pods are all alike."""
    kills, limit_bytes = memory_kills(masters)
    if kills >= MEMORY_KILLS_MAX:
        limit, raised, more = (format_bytes(limit_bytes * factor) for factor in (1, MEMORY_RAISE, 2))
        raise UserError(
            f"the master ran out of memory {kills} times in a row (limit {limit}). elasticdl resume {job} gives it "
            f"{raised}. A new job takes --master_resource_request=memory={more}"
        )


def check_not_refused(masters: Iterable[Manifest]) -> None:
    """Raise ``SubmissionRefusedError`` with its message if a container ``submit`` of this run has refused the job."""
    for pod in masters:
        if message := refusal(pod):
            raise SubmissionRefusedError(message)


def remove_failed_starts(api: KubernetesApi, masters: Iterable[Manifest]) -> None:
    """Remove the pods whose master did not start, because a server did not answer for example.

    Those that ran out of memory stay: ``check_memory`` counts them.
    """
    for pod in masters:
        if pod.get("status", {}).get("phase") == "Failed" and not has_planned(pod) and not refusal(pod):
            with contextlib.suppress(ElasticDLError):  # They are only in the way.
                api.delete(kinds.POD, pod["metadata"]["name"], uid=pod["metadata"]["uid"])


def check_not_begun(api: KubernetesApi, job: JobId, run: Incarnation, storage: str) -> None:
    """Check that a run that is not on the event log has not begun: a log that NATS has lost must not begin again.

    Args:
        storage: of the job, if this is its first run; empty: a resume, which continues from what is there.

    Raises:
        UserError: there are pods that a master of this run has created, or snapshots of the job.
    """
    from elasticdl.shared.model.manifests import snapshots_folder

    pods = [pod["metadata"]["name"] for pod in job_pods(api, job) if _is_ordered(pod, run)]
    if pods:
        found = f"its pods {', '.join(sorted(pods))} exist"
    elif storage and next(open_store(storage).list(snapshots_folder(storage, job)), None):
        found = f"{display(storage)} has snapshots of it"
    else:
        return
    raise UserError(
        f"the event log of {job} lacks the present run, but {found}: the NATS server has lost its data",
        hint=f"To continue from the snapshots: elasticdl resume {job} --namespace={api.namespace}",
    )


def _is_ordered(pod: Manifest, run: Incarnation) -> bool:
    """Whether a master of this run has created a pod; the client creates that of the first worker."""
    return creation_seq_of(pod) != EARLY_SEQ and run_of(pod) == run
