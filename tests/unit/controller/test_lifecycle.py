"""What is to be done for a TrainingJob, from where it stands and what the core has decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.manifests import batch_job, case, job_pods, stopped_master, training_job

from elasticdl.controller.core import Drain, JobTarget, Role, Start
from elasticdl.controller.service.job_log import JobFacts
from elasticdl.controller.service.lifecycle import (
    Case,
    Create,
    Discard,
    Phase,
    Resume,
    Scale,
    Step,
    Stop,
    Suspend,
    core_job,
    expected_orders,
    job_id,
    next_step,
)
from elasticdl.shared.kubernetes.names import SUSPENDED
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import check_job_name
from elasticdl.views.progress import ProgressSnapshot

CREATED_S = 1767323045.0


def target(workers: int = 3, ps: int = 1, *, admitted: bool = True) -> JobTarget:
    return JobTarget(job="team/clicks", admitted=admitted, workers=workers, ps=ps, reason="because")


def facts(workers: int, ps: int, state: JobState = JobState.TRAINING) -> JobFacts:
    return JobFacts(progress=ProgressSnapshot(state=state, batches=(25, 100), elapsed_s=30.0), wanted=(workers, ps))


def running(workers: int, **changes: object) -> Case:
    manifest = training_job()
    found = case(manifest, job=batch_job(manifest), pods=job_pods(manifest, workers), facts=facts(workers, 1))
    return replace(found, **changes)  # type: ignore[arg-type]


def suspended() -> Case:
    manifest = training_job()
    stopped = batch_job(manifest, ended="Complete", annotations={SUSPENDED: "no room"})
    return case(manifest, job=stopped, masters=[stopped_master(manifest)])


def test_the_id_of_the_job_is_always_the_same_and_valid() -> None:
    manifest = training_job()
    assert job_id(manifest) == job_id(training_job())
    check_job_name(job_id(manifest).rpartition("-")[0])
    other = training_job()
    other["metadata"]["uid"] = "another"
    assert job_id(other) != job_id(manifest)


def test_a_job_is_created_once_the_core_admits_it() -> None:
    waiting = case(training_job())
    assert waiting.phase is Phase.WAITING
    assert next_step(waiting, target(admitted=False, workers=0, ps=0), CREATED_S) is None
    assert next_step(waiting, target(), CREATED_S) == Create(workers=3, ps=1)


def test_a_job_that_has_ended_is_not_created_again_when_its_objects_are_gone() -> None:
    assert case(training_job(status={"phase": "Succeeded"})).phase is Phase.SUCCEEDED
    assert next_step(case(training_job(status={"phase": "Failed"})), target(), CREATED_S) is None


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (running(3), None),
        (running(2), Scale(workers=3, ps=1)),
        (running(2, facts=None), None),
        (running(2, ordered=(3, 1)), None),
    ],
)
def test_the_master_is_asked_for_what_differs(found: Case, step: Step | None) -> None:
    assert next_step(found, target(), CREATED_S) == step


def test_a_job_that_must_give_everything_away_is_suspended_and_resumed() -> None:
    assert next_step(running(3), target(admitted=False), CREATED_S) == Suspend(reason="because")
    manifest = training_job()
    stopping = case(manifest, job=batch_job(manifest, annotations={SUSPENDED: "no room"}), pods=job_pods(manifest, 2))
    assert stopping.phase is Phase.SUSPENDING
    assert next_step(stopping, target(), CREATED_S) is None
    assert suspended().phase is Phase.SUSPENDED
    assert next_step(suspended(), target(admitted=False), CREATED_S) is None
    assert next_step(suspended(), target(), CREATED_S) == Resume(workers=3, ps=1)


def test_a_job_that_a_user_has_stopped_stays_stopped() -> None:
    found = suspended()
    assert found.job is not None
    found.job["metadata"]["annotations"] = {}
    assert found.phase is Phase.STOPPED
    assert next_step(found, target(), CREATED_S) is None


def test_what_an_interrupted_creation_has_left_is_removed() -> None:
    manifest = training_job()
    half = batch_job(manifest)
    half["spec"] = {"suspend": True}
    assert next_step(case(manifest, job=half), target(), CREATED_S) == Discard()


def test_a_job_is_stopped_at_its_deadline() -> None:
    manifest = training_job(status={"startTime": "2026-01-02T03:04:05Z"}, activeDeadlineSeconds=60)
    found = case(manifest, job=batch_job(manifest), pods=job_pods(manifest, 3), facts=facts(3, 1))
    assert next_step(found, target(), CREATED_S + 59) is None
    assert isinstance(next_step(found, target(), CREATED_S + 61), Stop)


def test_the_core_sees_requests_limits_and_what_a_person_asks_for() -> None:
    job = core_job(case(training_job()))
    assert job is not None
    assert (job.name, job.created_s, job.worker.min, job.worker.max, job.ps.max) == ("team/clicks", CREATED_S, 2, 6, 2)
    assert job.worker.request == {"cpu": 500, "memory": 1024, "pods": 1}
    worker = {**training_job()["spec"]["worker"], "replicas": 4}
    fixed = core_job(case(training_job(worker=worker)))
    assert fixed is not None
    assert (fixed.worker.min, fixed.worker.max) == (4, 4)


def test_the_rest_of_the_time_follows_from_the_progress() -> None:
    job = core_job(running(3))
    assert job is not None
    assert job.remaining_s == pytest.approx(90.0)


def test_pods_that_are_not_there_yet_are_expected_where_the_core_wanted_them() -> None:
    chosen = {Role.WORKER: ["n1", "n2"], Role.PS: ["n3"]}
    orders = expected_orders(running(2, ordered=(3, 1)), chosen)
    assert [(order.role, order.node) for order in orders if isinstance(order, Start)] == [(Role.WORKER, "n1")]
    assert chosen == {Role.WORKER: ["n1"], Role.PS: []}


def test_the_workers_with_the_highest_numbers_are_expected_to_leave() -> None:
    orders = expected_orders(running(4, ordered=(2, 1)), {})
    assert [order.pod.rpartition("/")[2].split("-")[-2] for order in orders if isinstance(order, Drain)] == ["3", "2"]


def test_the_request_names_the_workers_that_the_core_has_chosen() -> None:
    found = running(3)
    name = next(each.pod.name for each in found.pods if each.number == 1)
    step = next_step(found, replace(target(workers=2), drains=(name,)), CREATED_S)
    assert step == Scale(workers=2, ps=1, leaving=(1,))


@pytest.mark.parametrize("recorded", [False, True])
def test_workers_that_were_asked_to_leave_count_as_gone(recorded: bool) -> None:
    """At first as this controller has asked, then as the job's log says."""
    if recorded:
        found = running(3, facts=replace(facts(2, 1), left_out=(1,)))
    else:
        found = running(3, ordered=(2, 1), leaving=frozenset({1}))
    (order,) = expected_orders(found, {})
    assert isinstance(order, Drain)
    assert order.pod == next(each.pod.name for each in found.pods if each.number == 1)
