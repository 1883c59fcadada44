"""The container ``submit`` of a job that can't continue."""

from __future__ import annotations

import pytest
from tests.unit.shared_kubernetes.memory_api import MemoryApi
from tests.unit.shared_kubernetes.test_pod_manifests import job

from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.cli.kubernetes.submit import NatsRefusedError, end_job
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.pod_manifests import pod_manifest
from elasticdl.shared.names import JobId, PodName, Service
from elasticdl.shared.pods.ports import EARLY_ORDER

JOB = JobId("job-1")


@pytest.fixture
def api() -> MemoryApi:
    """The API of a namespace in which a worker of the job runs."""
    api = MemoryApi()
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, 3))
    return api


def unreachable() -> KubernetesApi:
    raise TransientError("the API server can't be reached")


@pytest.mark.parametrize("error", [UserError("the model is wrong"), PermanentError("the log is gone")])
def test_an_error_that_ends_the_job_ends_its_pods(api: MemoryApi, error: Exception) -> None:
    assert end_job(lambda: api, JOB, error) in FAILED_CODES
    assert api.objects == {}


def test_a_refused_connection_does_not_end_a_job_that_has_pods(api: MemoryApi) -> None:
    assert end_job(lambda: api, JOB, NatsRefusedError("refuses this client")) not in FAILED_CODES
    assert len(api.objects) == 1


def test_a_refused_connection_ends_a_job_that_has_not_begun() -> None:
    assert end_job(MemoryApi, JOB, NatsRefusedError("refuses this client")) in FAILED_CODES


def test_the_first_worker_does_not_keep_a_job_that_has_not_begun() -> None:
    api = MemoryApi()
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, EARLY_ORDER))
    assert end_job(lambda: api, JOB, NatsRefusedError("refuses this client")) in FAILED_CODES
    assert api.objects == {}


def test_a_job_does_not_end_before_its_pods_are_deleted() -> None:
    assert end_job(unreachable, JOB, UserError("the model is wrong")) not in FAILED_CODES
