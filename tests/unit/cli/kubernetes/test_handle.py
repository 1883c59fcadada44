"""The handle of a job on Kubernetes: what is known of it without its event log."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cli.kubernetes.test_condition import DONE, FAILED, pod
from tests.unit.cli.kubernetes.test_manifests import planned
from tests.unit.shared_kubernetes.memory_api import MemoryApi

from elasticdl.cli.kubernetes.condition import condition_of
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.listing import reason_of
from elasticdl.shared.names import JobId

JOB = JobId("job-1")
SAID = "its service account may not: get jobs. The job waits until it may.\nGive it the Role"


@pytest.fixture
def api() -> MemoryApi:
    """A namespace with a Job; its containers ``prepare`` have said what they wait for."""
    api = MemoryApi()
    api.jobs[JOB] = {**planned().job("team"), "status": {}}
    api.logs = {"prepare": f"Waiting: {SAID}\n"}
    return api


@pytest.mark.parametrize(("prepare", "waiting"), [({"running": {}}, SAID), (DONE, "")])
def test_a_job_waits_for_what_its_container_prepare_waits_for(
    api: MemoryApi, prepare: dict[str, Any], waiting: str
) -> None:
    master = api.appear(pod({"waiting": {"reason": "PodInitializing"}}))
    master["status"]["initContainerStatuses"].insert(0, {"name": "prepare", "state": prepare})
    job = KubernetesJobHandle(api, JOB, is_default=True)
    assert job.condition().waiting == job.waits_for(master) == waiting


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("the master ran out of memory 3 times in a row (limit 256Mi)",) * 2,
        ("The job has failed.\nworker-0 failed 6 times in a row", ""),
    ],
)
def test_a_list_of_jobs_says_why_one_failed_whose_event_log_does_not(api: MemoryApi, message: str, reason: str) -> None:
    ended = pod(DONE, {"terminated": {"exitCode": 1, "message": message}})
    failed = {**api.jobs[JOB], "status": {"conditions": [FAILED]}}
    assert reason_of(condition_of(failed, [ended])) == reason
