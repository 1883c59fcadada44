"""The container ``submit`` of a job that can't continue."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.kubernetes.test_manifests import IDENTITY, planned
from tests.unit.shared_kubernetes.memory_api import MemoryApi
from tests.unit.shared_kubernetes.test_pod_manifests import job

from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES, RETRIES
from elasticdl.cli.kubernetes.new_job.before_run import LackingRightsError, check_not_begun, check_rights
from elasticdl.cli.kubernetes.prepare import SubmissionRefusedError, check_not_refused, end_job
from elasticdl.cli.kubernetes.submit import NatsRefusedError
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.pod_manifests import pod_manifest
from elasticdl.shared.names import Incarnation, JobId, PodName, Service
from elasticdl.shared.pods.ports import EARLY_ORDER
from elasticdl.shared.process.exit_codes import exit_code

JOB = JobId("job-1")
RUN = IDENTITY.run
WRONG = UserError("the model is wrong")


def namespace(failed: int = 0) -> MemoryApi:
    """The API of a namespace with a Job, so many of whose pods have failed."""
    api = MemoryApi()
    api.jobs[JOB] = {**planned().job("team"), "status": {"failed": failed}}
    return api


@pytest.fixture
def api() -> MemoryApi:
    """The API of a namespace in which a worker of the job runs."""
    api = namespace(failed=2)
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, 3))
    return api


def unreachable() -> KubernetesApi:
    raise TransientError("the API server can't be reached")


def limit(api: MemoryApi) -> int:
    """How many pods of the Job may fail."""
    return int(api.jobs[JOB]["spec"]["backoffLimit"])


@pytest.mark.parametrize("error", [WRONG, PermanentError("the log is gone")])
def test_an_error_that_ends_the_job_ends_its_pods_and_its_job(api: MemoryApi, error: Exception) -> None:
    code, note = end_job(lambda: api, JOB, RUN, error)
    assert (code in FAILED_CODES, note) == (True, "")
    assert api.objects == {}
    assert limit(api) == 2  # The third failure, that of this pod, is one too many.


def test_a_refused_connection_does_not_end_a_job_that_has_pods(api: MemoryApi) -> None:
    code, _ = end_job(lambda: api, JOB, RUN, NatsRefusedError("refuses this client"))
    assert code not in FAILED_CODES
    assert (len(api.objects), limit(api)) == (1, RETRIES)


def test_a_refused_connection_ends_a_job_that_has_not_begun() -> None:
    api = namespace()
    code, _ = end_job(lambda: api, JOB, RUN, NatsRefusedError("refuses this client"))
    assert code in FAILED_CODES
    assert limit(api) == 0


def test_the_first_worker_does_not_keep_a_job_that_has_not_begun() -> None:
    api = namespace()
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, EARLY_ORDER))
    code, _ = end_job(lambda: api, JOB, RUN, NatsRefusedError("refuses this client"))
    assert code in FAILED_CODES
    assert api.objects == {}


def test_a_job_does_not_end_before_its_pods_are_deleted() -> None:
    code, note = end_job(unreachable, JOB, RUN, WRONG)
    assert code not in FAILED_CODES
    assert "Kubernetes starts this pod again: the API server can't be reached" in note


def test_a_lacking_right_is_said_and_does_not_hide_the_error(api: MemoryApi) -> None:
    api.has_lost_rights = True
    code, note = end_job(lambda: api, JOB, RUN, WRONG)
    assert code in FAILED_CODES
    assert "Kubernetes starts this pod again: Kubernetes refuses to patch Job job-1" in note
    assert limit(api) == RETRIES


def test_a_pod_of_a_former_run_does_not_end_the_next_one(api: MemoryApi) -> None:
    before = deepcopy(api.jobs)
    end_job(lambda: api, JOB, Incarnation("ba9876543210"), WRONG)
    assert (len(api.objects), api.jobs) == (1, before)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_run_whose_log_was_lost_does_not_begin_beside_its_pods(is_resumed: bool, tmp_path: Path) -> None:
    api = namespace()
    api.appear(pod_manifest(job(), PodName("ps-0"), Service.PS, 4))
    storage = "" if is_resumed else tmp_path.as_uri()
    with pytest.raises(UserError, match=r"lacks the present run, but its pods job-1-ps-0-4 exist") as lost:
        check_not_begun(api, JOB, job().run, storage)
    assert lost.value.hint.endswith("elasticdl resume job-1 --namespace=team")
    assert end_job(lambda: api, JOB, RUN, lost.value)[0] in FAILED_CODES
    assert api.objects == {}


def test_snapshots_show_that_a_job_has_begun(tmp_path: Path) -> None:
    (tmp_path / "indices").mkdir()
    (tmp_path / "indices" / "0").touch()  # A former pod has planned the job, and could not open it.
    api = namespace()
    check_not_begun(api, JOB, RUN, tmp_path.as_uri())
    manifest = tmp_path / JOB / "snapshots" / "ps-0" / "manifest"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    with pytest.raises(UserError, match="has snapshots of it"):
        check_not_begun(api, JOB, RUN, tmp_path.as_uri())
    check_not_begun(api, JOB, RUN, "")  # A resume continues from them.


def test_pods_that_no_master_of_this_run_has_created_do_not_matter() -> None:
    api = namespace()
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, EARLY_ORDER))
    api.appear(pod_manifest(job(), PodName("ps-0"), Service.PS, 4))  # On a lost node, of the run before.
    check_not_begun(api, JOB, Incarnation("ba9876543210"), "")


def test_a_run_does_not_begin_before_the_master_may_end_it() -> None:
    api = MemoryApi()
    check_rights(api)
    api.has_lost_rights = True
    with pytest.raises(LackingRightsError, match="may not: patch jobs in namespace team") as lacking:
        check_rights(api)
    assert exit_code(lacking.value) not in FAILED_CODES  # Kubernetes starts the pod again, until it may.


def test_the_next_pod_ends_a_job_that_the_container_submit_has_refused() -> None:
    """That container runs the code of the model file, so it has no token to do it."""
    api = namespace(failed=1)
    pod = api.appear({**api.jobs[JOB]["spec"]["template"], "metadata": {"name": "job-1-x", "labels": {}}})
    states: list[dict[str, Any]] = [{"running": {}}, {"terminated": {"exitCode": 75}}, {"terminated": {"exitCode": 0}}]
    for state in states:
        pod["status"] = {"initContainerStatuses": [{"name": "submit", "state": state}]}
        check_not_refused(api, JOB, RUN)
    refused = {"terminated": {"exitCode": 1, "message": "the model is wrong"}}
    pod["status"] = {"initContainerStatuses": [{"name": "submit", "state": refused}]}
    check_not_refused(api, JOB, Incarnation("ba9876543210"))
    with pytest.raises(SubmissionRefusedError, match=r"^the model is wrong$") as error:
        check_not_refused(api, JOB, RUN)
    assert exit_code(error.value) in FAILED_CODES
