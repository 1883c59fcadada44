"""How a master reports its end to Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.shared_kubernetes.memory_api import MemoryApi
from tests.unit.shared_kubernetes.test_pod_manifests import job

from elasticdl.master.core import State
from elasticdl.master.main import pods_of, result_of
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.job_end import end_failed
from elasticdl.shared.kubernetes.pod_manifests import MESSAGE_BYTES_MAX, pod_manifest, write_message
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Incarnation, JobId, PodName, Service
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED

JOB, RUN = JobId("job-1"), Incarnation("0123456789ab")


def test_a_failed_job_ends_with_its_reason() -> None:
    state = State(job_state=JobState.FAILED)
    state.fail("worker-0 failed 4 times in a row.\nValueError: no")
    code, message = result_of(state)
    assert code == 1
    assert message == "The job has failed.\nworker-0 failed 4 times in a row.\nValueError: no"


def test_other_jobs_end_well() -> None:
    assert result_of(State(job_state=JobState.SUCCEEDED)) == (0, "The job has succeeded.")


def test_a_termination_message_is_not_too_long(tmp_path: Path) -> None:
    path = tmp_path / "message"
    write_message("ä" * MESSAGE_BYTES_MAX, path=path)
    assert path.read_text() == "ä" * (MESSAGE_BYTES_MAX // 2)
    write_message("ä" * MESSAGE_BYTES_MAX + "e", keeps_end=True, path=path)
    assert path.read_text() == "ä" * (MESSAGE_BYTES_MAX // 2 - 1) + "e"
    write_message("short", path=path)
    assert path.read_text() == "short"


def test_missing_templates_are_named(tmp_path: Path) -> None:
    api: Any = None  # It is not asked.
    with pytest.raises(UserError, match="none"):
        pods_of(api, JobId("job-1"), str(tmp_path / "none"))


@pytest.fixture
def api() -> MemoryApi:
    """The API of a namespace with the Job of a job, and a worker."""
    api = MemoryApi()
    env = [{"name": "ELASTICDL_RUN", "value": RUN}]
    pod = {"spec": {"containers": [{"name": "master", "env": env}]}}
    api.jobs[JOB] = {"spec": {"backoffLimit": 1_000_000, "template": pod}, "status": {"failed": 1}}
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, 3))
    return api


def test_a_master_that_can_not_continue_ends_the_pods_of_the_job_and_the_job(api: MemoryApi) -> None:
    assert end_failed(lambda: api, JOB, RUN, EXIT_REFUSED) == (EXIT_REFUSED, "")
    assert api.objects == {}
    assert api.jobs[JOB]["spec"]["backoffLimit"] == 1  # One pod has failed; the next failure is one too many.


def test_the_job_does_not_end_while_its_pods_can_not_be_deleted() -> None:
    def unreachable() -> KubernetesApi:
        raise TransientError("the API server can't be reached")

    code, _ = end_failed(unreachable, JOB, RUN, EXIT_REFUSED)
    assert code == EXIT_AWAY


def test_a_master_that_may_not_end_the_job_says_so(api: MemoryApi) -> None:
    api.has_lost_rights = True
    code, note = end_failed(lambda: api, JOB, RUN, EXIT_REFUSED)
    assert code == EXIT_REFUSED
    assert note.startswith("The Job can't be ended, so Kubernetes starts this pod again: ")
