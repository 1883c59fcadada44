"""A job of high priority arrives on a cluster that another job fills."""

from __future__ import annotations

import pytest
from tests.cluster.scenarios.cluster_jobs import OVERHEAD_M, ClusterJobs
from tests.cluster.scenarios.conftest import RESULTS, Note
from tests.cluster.scenarios.plots import CPU_M, plot_held_cpus
from tests.cluster.scenarios.timeline import Recorder

WORKER_M = 2 * CPU_M
HIGH_WORKERS = 4
LOW_EPOCHS, HIGH_EPOCHS = 36, 4
LOW_BATCHES = 150
"""Batches after which all workers of the first job have loaded TensorFlow."""


@pytest.mark.bench_cluster
@pytest.mark.timeout(1800)
def test_a_job_of_high_priority_takes_what_it_needs_and_gives_it_back(
    jobs: ClusterJobs, recorder: Recorder, free_milli_cpus: int, note: Note
) -> None:
    all_workers = (free_milli_cpus - OVERHEAD_M) // WORKER_M
    jobs.start("patient", workers=all_workers, worker_m=WORKER_M, epochs=LOW_EPOCHS)
    patient = jobs.wait_for_workers("patient", all_workers)
    jobs.wait_for_batches(patient, LOW_BATCHES)

    high = "--worker_pod_priority=elasticdl-high"
    entered_s = jobs.start("urgent", high, workers=HIGH_WORKERS, worker_m=WORKER_M, epochs=HIGH_EPOCHS)
    urgent = jobs.wait_for_workers("urgent", HIGH_WORKERS)
    jobs.wait_for_exact_end(urgent)
    jobs.wait_for_workers("patient", all_workers)
    jobs.wait_for_exact_end(patient)

    timeline = recorder.timeline()
    arrived_s = timeline.first_created_s(urgent, "worker")
    ended_s = timeline.first_end_s(urgent, "worker")
    assert timeline.lost_pods(urgent, until_s=ended_s) == set()
    names = {patient: "low priority", urgent: "high priority"}
    plot_held_cpus(timeline, names, free_milli_cpus, RESULTS / "two-jobs.svg")
    first_s, all_s = (timeline.first_running_s(urgent, "worker", count) for count in (1, HIGH_WORKERS))
    back_s = timeline.first_running_s(patient, "worker", all_workers, after_s=ended_s)
    note(
        workers=all_workers,
        first_worker_after_the_command_s=first_s - entered_s,
        first_worker_after_its_pod_s=first_s - arrived_s,
        all_workers_after_their_first_pod_s=all_s - arrived_s,
        workers_back_after_its_workers_stop_s=back_s - ended_s,
        workers_back_after_its_end_s=back_s - timeline.last_end_s(urgent),
        fewest_workers=timeline.fewest_running(patient, "worker", arrived_s, ended_s),
        requested_share=timeline.mean_bound([patient, urgent], arrived_s, ended_s) / free_milli_cpus,
    )
