"""Jobs start with the workers that fit, and take the others when there is room. Gang scheduling would let them wait."""

from __future__ import annotations

import time

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.scenarios.cluster_jobs import OVERHEAD_M, ClusterJobs
from tests.cluster.scenarios.conftest import Note
from tests.cluster.scenarios.timeline import Recorder
from tests.cluster.sites import POD_IMAGE
from tests.cluster.test_service_images import RESTRICTED


@pytest.mark.bench_cluster
@pytest.mark.timeout(1200)
def test_a_job_starts_with_the_workers_that_fit_and_grows(
    cluster: Cluster, jobs: ClusterJobs, recorder: Recorder, free_milli_cpus: int, note: Note
) -> None:
    workers = 4
    worker_m = (free_milli_cpus - OVERHEAD_M) // workers
    namespace, other = recorder.namespace, "other"
    requests = {"requests": {"cpu": f"{worker_m}m"}}
    cluster.create_pod(namespace, other, POD_IMAGE, resources=requests, securityContext=RESTRICTED)
    jobs.wait_until(lambda now: now.running_at(other, "") == 1, "the other pod runs")

    entered_s = jobs.start("grows", workers=workers, worker_m=worker_m, epochs=3)
    job = jobs.wait_for_workers("grows", workers - 1)
    jobs.wait_for_batches(job, 1)
    assert recorder.timeline().running_at(job, "worker") == workers - 1
    deleted_s = time.time()
    cluster.core.delete_namespaced_pod(other, namespace)
    jobs.wait_for_workers("grows", workers)
    jobs.wait_for_exact_end(job)

    timeline = recorder.timeline()
    first_s, all_but_one_s = (timeline.first_running_s(job, "worker", count) for count in (1, workers - 1))
    note(
        workers=workers,
        first_worker_after_the_command_s=first_s - entered_s,
        all_but_one_after_the_first_s=all_but_one_s - first_s,
        last_worker_after_the_other_pod_s=timeline.first_running_s(job, "worker", workers) - deleted_s,
    )


@pytest.mark.bench_cluster
@pytest.mark.timeout(1200)
def test_two_jobs_of_more_than_half_the_cluster_run_together(
    jobs: ClusterJobs, recorder: Recorder, free_milli_cpus: int, note: Note
) -> None:
    places = 6
    wanted = places // 2 + 1
    worker_m = (free_milli_cpus - 2 * OVERHEAD_M) // places
    jobs.start("first", workers=wanted, worker_m=worker_m, epochs=16)
    first = jobs.wait_for_workers("first", wanted)
    jobs.start("second", workers=wanted, worker_m=worker_m, epochs=14)
    second = jobs.wait_for_workers("second", places - wanted)
    together = recorder.timeline()
    assert [together.running_at(job, "worker") for job in (first, second)] == [wanted, places - wanted]
    jobs.wait_for_batches(second, 1)
    assert not recorder.timeline().has_ended(first, "worker")
    jobs.wait_for_exact_end(first)
    jobs.wait_for_workers("second", wanted)
    jobs.wait_for_exact_end(second)

    timeline = recorder.timeline()
    both_s, ended_s = timeline.first_running_s(second, "worker"), timeline.first_end_s(first, "worker")
    note(
        places=places,
        workers_asked_by_each=wanted,
        requested_share=timeline.mean_bound([first, second], both_s, ended_s) / free_milli_cpus,
        all_workers_after_the_other_job_s=timeline.first_running_s(second, "worker", wanted) - ended_s,
    )
