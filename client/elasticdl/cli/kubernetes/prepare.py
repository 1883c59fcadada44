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
from collections.abc import Callable

from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.cli.kubernetes.new_job.before_run import (
    check_memory,
    check_not_begun,
    check_not_refused,
    masters_of,
    remove_failed_starts,
    wait_for_rights,
)
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit import NatsRefusedError, connect, former_run, is_open, read_job, report_error, say
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_failed
from elasticdl.shared.kubernetes.job_pods import creation_seq_of, job_pods
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import WAITING_PREFIX
from elasticdl.shared.names import Incarnation, JobId
from elasticdl.shared.process.exit_codes import exit_code
from elasticdl.shared.process.logs import hide_details
from elasticdl.shared.process.settings import ProcessSettings, variable


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


if __name__ == "__main__":
    sys.exit(main())
