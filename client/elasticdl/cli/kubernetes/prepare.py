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
from collections.abc import Callable

from elasticdl.cli.kubernetes.condition import refusal
from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.cli.kubernetes.new_job.before_run import check_not_begun, check_rights
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit import NatsRefusedError, connect, former_run, read_job, report_error
from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_run
from elasticdl.shared.kubernetes.job_pods import job_pods, order_of, run_of
from elasticdl.shared.kubernetes.names import object_name
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.process.exit_codes import EXIT_AWAY, exit_code
from elasticdl.shared.process.logs import hide_details
from elasticdl.shared.process.settings import ProcessSettings, variable

_JOB_NAME = "batch.kubernetes.io/job-name"


class SubmissionRefusedError(UserError):
    """The container ``submit`` of a former pod has refused the job."""


async def prepare(file: SubmissionFile, settings: ProcessSettings) -> None:
    """Check a run that is not on its log.

    Raises:
        ElasticDLError: it must not begin, or not now.
    """
    from elasticdl.master.snapshots.recovery import recover

    bus = await connect(settings.nats_url, file.job, settings.nats_replicas)
    try:
        if (await recover(bus)).state.run == file.run:
            return
    finally:
        await bus.close()
    await asyncio.to_thread(_check_cluster, file)


def _check_cluster(file: SubmissionFile) -> None:
    with contextlib.closing(KubernetesApi.connect()) as api:
        check_rights(api)
        check_not_refused(api, file.job, file.run)
        check_not_begun(api, file.job, file.run, "" if file.resumption else former_run(file).storage)


def check_not_refused(api: KubernetesApi, job: JobId, run: Incarnation) -> None:
    """Check that no container ``submit`` of this run has refused the job.

    Raises:
        SubmissionRefusedError: one has; with its message.
    """
    for pod in api.list(kinds.POD, labels=f"{_JOB_NAME}={object_name(job)}").items:
        if run_of(pod) == run and (message := refusal(pod)):
            raise SubmissionRefusedError(message)


def main() -> int:
    """Entry point.

    Returns:
        0, or the exit code of the error, which is in the container's termination message.
    """
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
    """End the Job and the pods of a job that an error ends.

    Args:
        connect: connects to the cluster and the namespace of the job.
        job: the job.
        run: its run.
        error: why it ends.

    Returns:
        The exit code of this container, and a remark for people. If the code is none of ``FAILED_CODES``, Kubernetes
        starts the container again.
    """
    try:
        with contextlib.closing(connect()) as api:
            if isinstance(error, NatsRefusedError) and any(map(order_of, job_pods(api, job))):
                return EXIT_AWAY, ""
            end_run(api, job, run)
    except ElasticDLError as failure:
        note = f"The Job can't be ended, so Kubernetes starts this pod again: {failure}"
        return EXIT_AWAY if isinstance(failure, TransientError) else exit_code(error), note
    return exit_code(error), ""


if __name__ == "__main__":
    sys.exit(main())
