"""``python -m elasticdl.cli.kubernetes.prepare``: the first container of a master's pod, with the token of the master.

It runs no code of users. It checks what a run needs of the cluster before the container ``submit`` opens it, and ends
the job if that container of a former pod has refused it: that one runs the code of the model file, so it has no token.

An error that ends the job also ends its pods, and the Job. A refused connection does not end a job whose master has
created pods: Kubernetes starts the container again, until the connection is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable

from elasticdl.cli.kubernetes.checks import master_rights_finding
from elasticdl.cli.kubernetes.condition import has_planned, memory_kills, refusal
from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit import NatsRefusedError, connect, former_run, is_open, read_job, report_error, say
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import JOB_NAME, end_failed
from elasticdl.shared.kubernetes.job_pods import creation_seq_of, job_pods, run_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import WAITING_PREFIX, object_name
from elasticdl.shared.kubernetes.pod_manifests import MEMORY_RAISE
from elasticdl.shared.kubernetes.quantities import format_bytes
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.pods.ports import EARLY_SEQ
from elasticdl.shared.process.exit_codes import exit_code
from elasticdl.shared.process.logs import hide_details
from elasticdl.shared.process.settings import ProcessSettings, variable
from elasticdl.shared.storage import display, open_store

RIGHTS_POLL_S = 5.0
MEMORY_KILLS_MAX = 3
"""Masters in a row that may run out of memory."""


async def prepare(file: SubmissionFile, settings: ProcessSettings) -> None:
    """Check what a master needs, and more if it is the first of its run."""
    with contextlib.closing(KubernetesApi.connect()) as api:
        masters = await asyncio.to_thread(_former_masters, api, file)  # First: the log may be too large for this pod.
        if not await _is_open(file, settings):
            storage = "" if file.resumption else former_run(file).storage
            check_not_refused(masters)
            await asyncio.to_thread(check_not_begun, api, file.job, file.run, storage)
        await asyncio.to_thread(remove_failed_starts, api, masters)


def _former_masters(api: KubernetesApi, file: SubmissionFile) -> list[Manifest]:
    """The pods of the run's masters, this one included, if there may be one more."""
    wait_for_rights(api, lambda text: say(f"{WAITING_PREFIX}{text}"), time.sleep)
    masters = masters_of(api, file.job, file.run)
    check_memory(masters, file.job)
    return masters


async def _is_open(file: SubmissionFile, settings: ProcessSettings) -> bool:
    from elasticdl.views import reading

    async with await connect(settings.nats_url, file.job, settings.nats_replicas) as bus:
        return is_open((await reading.exact(bus)).state, file)


def main() -> int:
    """Entry point."""
    hide_details()
    try:
        file, settings = read_job()
        asyncio.run(prepare(file, settings))
    except Exception as error:  # The outermost frame: Python's own exit code looks like that of a job that has failed.
        code, note = exit_code(error), ""
        if code in FAILED_CODES:
            job, run = (os.environ[variable(name)] for name in ("job", "run"))
            code, note = end_job(KubernetesApi.connect, JobId(job), Incarnation(run), error)
        report_error(error, note)
        return code
    return 0


def end_job(connect: Callable[[], KubernetesApi], job: JobId, run: Incarnation, error: Exception) -> tuple[int, str]:
    """``end_failed``; a refused connection does not end a job that has pods."""

    def is_spared(api: KubernetesApi) -> bool:
        return isinstance(error, NatsRefusedError) and any(map(creation_seq_of, job_pods(api, job)))

    return end_failed(connect, job, run, exit_code(error), is_spared)


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
    """Raise ``UserError`` with its message if a container ``submit`` of this run has refused the job."""
    for pod in masters:
        if message := refusal(pod):
            raise UserError(message)


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


if __name__ == "__main__":
    sys.exit(main())
