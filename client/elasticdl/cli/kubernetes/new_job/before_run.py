"""What the container ``submit`` checks in the cluster before it opens a run of a job on the event log."""

from __future__ import annotations

from elasticdl.cli.kubernetes.checks import master_rights_finding
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_pods import job_pods, order_of, run_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.pods.ports import EARLY_ORDER
from elasticdl.shared.storage import display, open_store


class LackingRightsError(TransientError):
    """The service account of the master lacks rights. The container is started again until it has them."""


def check_rights(api: KubernetesApi) -> None:
    """Check that the master will be able to manage the pods of the job, and to end its Job.

    Raises:
        LackingRightsError: it may not.
        TransientError: the API server can't be reached.
    """
    found = master_rights_finding(api.is_allowed, api.namespace)
    if found.problem:
        raise LackingRightsError(f"{found.problem}. The job waits until it may.\n{found.remedy}")


def check_not_begun(api: KubernetesApi, job: JobId, run: Incarnation, storage: str) -> None:
    """Check that a run that is not on the event log has not begun: a log that NATS has lost must not begin again.

    Args:
        api: the cluster, and the namespace of the job.
        job: the job.
        run: the run.
        storage: of the job, if this is its first run; empty: a resume, which continues from what is there.

    Raises:
        UserError: there are pods that a master of this run has created, or snapshots of the job.
        TransientError, PermanentError: the API server or the storage can't be reached, or refuses.
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
    return order_of(pod) != EARLY_ORDER and run_of(pod) == run
