"""``elasticdl resume`` of a job on Kubernetes: a new Job object for the same job, with its pods, model and token."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.accepted import leaving_lines
from elasticdl.cli.jobs.resume_changes import ResumeChanges, check_changes
from elasticdl.cli.kubernetes.condition import memory_kills
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.manifests.job_objects import RETRIES
from elasticdl.cli.kubernetes.new_job.creation import create_objects, write_objects
from elasticdl.cli.kubernetes.new_job.following import follow
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, JOB, POD, SECRET, Kind, Manifest
from elasticdl.shared.kubernetes.names import SUBMISSION_FILE, labels, object_name, selector
from elasticdl.shared.kubernetes.pod_manifests import MEMORY_RAISE, raise_memory
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import JobId, new_incarnation
from elasticdl.shared.process.settings import variable

REMOVAL_S_MAX = 120.0
"""Seconds in which Kubernetes has to remove the objects of the former run. Pods may take ``GRACE_S`` to end."""
_POLL_S = 0.25
_JOB_FIELDS = ("ttlSecondsAfterFinished", "podReplacementPolicy", "template")
"""What stays."""
_CONTROLLER_LABELS = ("controller-uid", "job-name")
"""What Kubernetes adds to the labels of a Job's pods, with and without a prefix."""


def resume(job: KubernetesJobHandle, changes: ResumeChanges, *, detach: bool) -> int:
    """Run the command."""
    lacked_memory = create_next_run(job, changes)
    console = plain_console()
    if lacked_memory:
        console.print(f"The master ran out of memory. The next one gets {MEMORY_RAISE} times as much.")
    console.print(f"Created the next run of job {job.job} in namespace {job.api.namespace}.")
    if detach:
        console.print(leaving_lines(job.arguments))
        return exit_codes.SUCCESS
    console.print("Ctrl-C leaves it running.")
    return follow(job, is_new=False)


def create_next_run(job: KubernetesJobHandle, changes: ResumeChanges) -> bool:
    """Replace the objects of a job that has ended by those of its next run.

    Returns:
        Whether the former master ran out of memory, so that the next one gets more.
    """
    check_ended(job, "resumed")
    former = job.job_object()
    config_map = job.api.get(CONFIG_MAP, object_name(job.job))
    file = SubmissionFile.from_json(config_map["data"][SUBMISSION_FILE])
    has_finished = job.condition().state == JobState.SUCCEEDED.value
    check_changes(changes, job.job, job.arguments, file.flags.kind, has_finished=has_finished)
    run = new_incarnation()
    file = replace(file, run=run, created_s=time.time(), resumption=changes)
    belongings = (next_config_map(config_map, file.to_json()), next_secret(job.api.get(SECRET, object_name(job.job))))
    lacked_memory = any(memory_kills(job.masters()))
    _create_again(job.api, job.job, former, next_job(former, run, raises_memory=lacked_memory), belongings)
    return lacked_memory


def check_ended(job: KubernetesJobHandle, what: str) -> None:
    """Refuse a job that has not ended."""
    condition = job.condition()
    if condition.is_running:
        raise UserError(
            f"job {job.job} is {condition.state}, so it can't be {what}",
            hint=f"To follow it: elasticdl attach {job.arguments}. To stop it first: elasticdl stop {job.arguments}",
        )


def _create_again(
    api: KubernetesApi, job: JobId, former: Manifest, new: Manifest, belongings: Sequence[Manifest]
) -> None:
    """Replace the objects of a job. If that fails half-way, a file in the working directory holds them."""
    name = object_name(job)
    api.delete(JOB, name, uid=former["metadata"]["uid"])
    try:
        _wait_until_removed(api, job)
        create_objects(api, new, belongings)
    except BaseException as error:
        file = Path(f"{name}.yaml")
        write_objects([*belongings, new], file)
        raise UserError(
            f"the objects of job {job} were deleted, and the new ones can't be created: "
            f"{error or type(error).__name__}. They are in the file {file}.",
            hint=f"Create them: kubectl create --filename={file}",
        ) from error


def _wait_until_removed(api: KubernetesApi, job: JobId) -> None:
    end_s = time.monotonic() + REMOVAL_S_MAX
    while True:
        objects = any(api.find(kind, object_name(job)) for kind in (JOB, CONFIG_MAP, SECRET))
        pods = api.list(POD, labels=selector(labels(job))).items
        if not objects and not pods:
            return
        if time.monotonic() > end_s:
            if objects or not all("deletionTimestamp" in pod["metadata"] for pod in pods):
                raise TransientError(f"Kubernetes has not removed all of them after {REMOVAL_S_MAX:g} s")
            return  # Their node is lost. The log and the registers of the ps ignore what is left of a former run.
        time.sleep(_POLL_S)


def next_job(former: Manifest, run: str, *, raises_memory: bool = False) -> Manifest:
    """The Job of the next run, suspended."""
    spec = deepcopy({name: former["spec"][name] for name in _JOB_FIELDS if name in former["spec"]})
    metadata = spec["template"].get("metadata", {})
    metadata["labels"] = {
        name: value
        for name, value in metadata.get("labels", {}).items()
        if name.rpartition("/")[2] not in _CONTROLLER_LABELS
    }
    for container in _containers(spec["template"]):
        if raises_memory:
            raise_memory(container)
        for each in container.get("env", ()):
            if each["name"] == variable("run"):
                each["value"] = run
    job = _object(JOB, former)
    if owners := former["metadata"].get("ownerReferences"):
        job["metadata"]["ownerReferences"] = owners
    return {**job, "spec": {"suspend": True, "backoffLimit": RETRIES, **spec}}


def next_config_map(former: Manifest, submission: str) -> Manifest:
    """The ConfigMap of the next run."""
    data = {**former.get("data", {}), SUBMISSION_FILE: submission}
    return {**_object(CONFIG_MAP, former), "data": data, "binaryData": former.get("binaryData") or {}}


def next_secret(former: Manifest) -> Manifest:
    """The Secret of the next run: that of the former one."""
    return {**_object(SECRET, former), "type": "Opaque", "data": former.get("data") or {}}


def _object(kind: Kind, former: Manifest) -> Manifest:
    metadata = {name: former["metadata"][name] for name in ("name", "namespace", "labels")}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _containers(template: Manifest) -> Iterator[Manifest]:
    spec = template["spec"]
    yield from (*spec.get("initContainers", ()), *spec["containers"])
