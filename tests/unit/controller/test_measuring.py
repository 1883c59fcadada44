"""Throughput by number of workers, and the load of ps."""

from __future__ import annotations

import pytest
from tests.unit.controller.manifests import batch_job, case, job_pods, training_job

from elasticdl.controller.core import Curve, Policy
from elasticdl.controller.service.job_log import JobFacts
from elasticdl.controller.service.lifecycle import core_job
from elasticdl.controller.service.measuring import SETTLE_S, PsCpu, PsLoad, Throughput, fitted
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.views.progress import ProgressSnapshot


def test_a_curve_is_found_again() -> None:
    curve = fitted({workers: 100 * workers / (0.9 + 0.1 * workers) for workers in (1, 4, 7)})
    assert curve.speed(16) == pytest.approx(100 * 16 / 2.5)
    assert curve.gain(1) > curve.gain(8) > curve.gain(30) > 0


@pytest.mark.parametrize("means", [{}, {4: 380.0}])
def test_without_two_numbers_of_workers_nothing_is_known(means: dict[int, float]) -> None:
    assert fitted(means) == Curve()


def test_what_gets_slower_with_more_workers_gives_no_reason_for_another_one() -> None:
    curve = fitted({2: 200.0, 4: 201.0, 8: 190.0})
    assert curve.gain(8) < Policy().gain_min


def test_noise_does_not_make_a_curve_that_grows_faster_than_its_workers() -> None:
    curve = fitted({2: 190.0, 4: 410.0})
    assert curve.gain(4) == pytest.approx(1.0)


def test_only_numbers_that_have_settled_count() -> None:
    throughput = Throughput()
    for second in range(int(SETTLE_S) + 3):
        throughput.update(float(second), 2, 50.0 if second < SETTLE_S else 200.0)
    throughput.update(100.0, 3, 999.0)
    assert throughput.means == {2: 200.0}


def beat(name: str, time_s: float, cpu_s: float, run: str = "a") -> Heartbeat:
    return Heartbeat(
        service=Service.PS,
        name=PodName(name),
        incarnation=Incarnation(run),
        time_s=time_s,
        metrics={"cpu_s": cpu_s},
    )


def test_the_load_of_ps_is_the_mean_of_their_cpu_time() -> None:
    cpu = PsCpu()
    assert cpu.update([beat("ps-0", 0, 0), beat("ps-1", 0, 5)], 3) is None
    assert cpu.update([beat("ps-0", 10, 9), beat("ps-1", 10, 8)], 3) == PsLoad(cpus=0.6, ps=2, workers=3)
    assert cpu.update([beat("ps-0", 20, 10), beat("ps-1", 20, 8)], 3) == PsLoad(cpus=0.05, ps=2, workers=3)
    assert cpu.update([beat("ps-0", 30, 11), beat("ps-1", 30, 0, "b")], 3) is None


def test_the_core_gets_the_load_in_parts_of_what_a_ps_requests() -> None:
    manifest = training_job()
    progress = ProgressSnapshot(state=JobState.TRAINING)
    facts = JobFacts(progress=progress, wanted=(2, 1), ps_load=PsLoad(cpus=0.05, ps=1, workers=2))
    job = core_job(case(manifest, job=batch_job(manifest), pods=job_pods(manifest, 2), facts=facts))
    assert job is not None
    assert (job.ps_load, job.ps_load_workers, job.ps_load_ps) == (0.5, 2, 1)
