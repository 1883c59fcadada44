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
from elasticdl.cli.kubernetes.prepare import (
    check_memory,
    check_not_begun,
    check_not_refused,
    end_job,
    masters_of,
    remove_failed_starts,
    wait_for_rights,
)
from elasticdl.cli.kubernetes.submit import NatsRefusedError
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.pod_manifests import pod_manifest
from elasticdl.shared.names import Incarnation, JobId, PodName, Service
from elasticdl.shared.pods.ports import EARLY_SEQ
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
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, EARLY_SEQ))
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
    api.appear(pod_manifest(job(), PodName("worker-0"), Service.WORKER, EARLY_SEQ))
    api.appear(pod_manifest(job(), PodName("ps-0"), Service.PS, 4))  # On a lost node, of the run before.
    check_not_begun(api, JOB, Incarnation("ba9876543210"), "")


def test_a_pod_waits_until_the_master_has_its_rights_and_says_so_once() -> None:
    """Each pod that ended for this would stay until the Job is deleted."""
    api = MemoryApi()
    api.has_lost_rights = True
    said: list[str] = []
    waits = iter([True, True, False])

    def sleep(_seconds: float) -> None:
        api.has_lost_rights = next(waits)

    wait_for_rights(api, said.append, sleep)
    (text,) = said
    assert "may not: patch jobs in namespace team. The job waits until it may.\nGive it the Role" in text
    assert list(waits) == []


def master(api: MemoryApi, number: int, **states: dict[str, Any]) -> dict[str, Any]:
    """A pod of the Job; the states of its containers by name."""
    metadata = {"name": f"job-1-{number}", "labels": {}, "creationTimestamp": f"2026-01-01T00:{number:02}:00Z"}
    pod = api.appear({**api.jobs[JOB]["spec"]["template"], "metadata": metadata})
    found = {
        kind: [{"name": name, "state": states[name]} for name in names if name in states]
        for kind, names in (("initContainerStatuses", ("prepare", "submit")), ("containerStatuses", ("master",)))
    }
    pod["status"] = {"phase": "Failed", **found}
    return pod


def out_of_memory(minutes: int = 1) -> dict[str, Any]:
    """The state of a container whose kubelet has put the end of the log into the message."""
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": f"2026-01-01T00:{minutes:02}:00Z"}
    return {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": '{"event": "took over"}', **times}}


DONE: dict[str, Any] = {"terminated": {"exitCode": 0}}
AWAY: dict[str, Any] = {"terminated": {"exitCode": 75, "message": "no NATS server answers"}}


def test_a_master_that_runs_out_of_memory_again_and_again_ends_its_job() -> None:
    """The pods of a Job are all alike: nothing gives the next one more."""
    api = namespace()
    for number in range(2):
        master(api, number, prepare=DONE, submit=DONE, master=out_of_memory())
    master(api, 2, prepare=AWAY)
    check_memory(masters_of(api, JOB, RUN), JOB)
    master(api, 3, prepare=out_of_memory())  # It folds the same log.
    check_memory(masters_of(api, JOB, Incarnation("ba9876543210")), JOB)
    with pytest.raises(UserError) as error:
        check_memory(masters_of(api, JOB, RUN), JOB)
    assert str(error.value) == (
        "the master ran out of memory 3 times in a row (limit 4096Mi). elasticdl resume job-1 gives it 6144Mi. "
        "A new job takes --master_resource_request=memory=8192Mi"
    )
    assert exit_code(error.value) in FAILED_CODES


def test_a_master_that_ran_for_long_before_it_ran_out_of_memory_is_no_failure_in_a_row() -> None:
    api = namespace()
    for number in range(9):
        master(api, number, prepare=DONE, submit=DONE, master=out_of_memory(minutes=6))
    check_memory(masters_of(api, JOB, RUN), JOB)


def test_pods_whose_master_did_not_start_are_removed_and_those_of_masters_stay() -> None:
    api = namespace()
    for number in range(3):
        master(api, number, prepare=AWAY)
    master(api, 3, prepare=DONE, submit=AWAY)
    master(api, 4, prepare=DONE, submit=DONE, master=AWAY)
    master(api, 5, prepare=DONE, submit=out_of_memory())
    master(api, 6)["status"]["phase"] = "Running"
    remove_failed_starts(api, masters_of(api, JOB, RUN))
    assert list(api.objects) == ["job-1-4", "job-1-5", "job-1-6"]


def test_the_next_pod_ends_a_job_that_the_container_submit_has_refused() -> None:
    """That container runs the code of the model file, so it has no token to do it."""
    api = namespace(failed=1)
    for number, state in enumerate(({"running": {}}, AWAY, DONE)):
        master(api, number, prepare=DONE, submit=state)
    check_not_refused(masters_of(api, JOB, RUN))
    master(api, 3, prepare=DONE, submit={"terminated": {"exitCode": 1, "message": "the model is wrong"}})
    check_not_refused(masters_of(api, JOB, Incarnation("ba9876543210")))
    with pytest.raises(UserError, match=r"^the model is wrong$") as error:
        check_not_refused(masters_of(api, JOB, RUN))
    assert exit_code(error.value) in FAILED_CODES
