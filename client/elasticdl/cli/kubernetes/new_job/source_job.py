"""The job whose model a new job on Kubernetes starts from, evaluates or predicts with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from elasticdl.cli.jobs.ended_job import read_from
from elasticdl.cli.jobs.former_run import FormerRun
from elasticdl.cli.jobs.handle import JobNotFoundError
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.lookup import find_in
from elasticdl.cli.kubernetes.submission_file import SourceJob, SubmissionFile
from elasticdl.cli.submission.submit import storage_of
from elasticdl.shared.bus import Bus
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP
from elasticdl.shared.kubernetes.names import SUBMISSION_FILE, object_name
from elasticdl.shared.names import JobId
from elasticdl.shared.storage import join

_ID = re.compile(r"-[0-9a-f]{6}$")
"""How the id of a job ends; see ``new_job_id``."""


def find_source_job(api: KubernetesApi, job: str, defaults: Mapping[str, str]) -> SourceJob:
    """Find a job that has ended, and where its snapshots are.

    Args:
        job: its id or name. A job whose objects were deleted is found by its id, in the default storage.
    """
    try:
        handle = KubernetesJobHandle(api, find_in(api, job), is_default=True)
    except JobNotFoundError:
        if _ID.search(job) and (storage := defaults.get("storage")):
            return SourceJob(job=JobId(job), storage=join(storage, job))
        raise
    if handle.condition().is_running:
        raise UserError(
            f"job {handle.job} is running, so its model still changes",
            hint=f"Wait for its end, or stop it: elasticdl stop {handle.job} --namespace={api.namespace}",
        )
    content = api.get(CONFIG_MAP, object_name(handle.job))["data"][SUBMISSION_FILE]
    return SourceJob(job=handle.job, storage=storage_of(SubmissionFile.from_json(content).flags, None, handle.job))


async def newest_version(bus: Bus, source: SourceJob) -> tuple[InitialModel, JobSpec]:
    """The newest version of a job's model, and that job."""
    former = FormerRun(job=source.job, arguments=source.job, storage=source.storage)
    ended = await read_from(bus, former)
    return await asyncio.to_thread(ended.initial_model), ended.spec
