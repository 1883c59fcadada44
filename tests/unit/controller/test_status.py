"""The status of a TrainingJob."""

from __future__ import annotations

from tests.unit.controller.manifests import batch_job, case, job_pods, training_job
from tests.unit.controller.test_lifecycle import CREATED_S, facts, running, suspended, target

from elasticdl.controller.service.lifecycle import Case
from elasticdl.controller.service.status import status_of

NOW = "2026-01-02T03:04:05Z"


def test_a_running_job_shows_workers_progress_and_the_last_reason() -> None:
    status = status_of(running(3), target(), CREATED_S)
    assert (status["phase"], status["workers"], status["workersText"]) == ("Running", 3, "3 (2-6)")
    assert (status["progress"], status["remainingSeconds"], status["reason"]) == (25, 90, "because")
    assert (status["startTime"], status["completionTime"]) == (NOW, None)
    assert status["selector"] == f"app.kubernetes.io/instance={status['job']}"


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    manifest = training_job(status=status_of(running(3), target(), CREATED_S))
    later = case(manifest, job=batch_job(manifest), pods=job_pods(manifest, 3), facts=facts(3, 1))
    (admitted, is_running) = status_of(later, target(), CREATED_S + 60)["conditions"]
    assert (admitted["type"], is_running["type"], is_running["lastTransitionTime"]) == ("Admitted", "Running", NOW)
    manifest["status"]["conditions"][1]["status"] = "False"
    (_, again) = status_of(later, target(), CREATED_S + 60)["conditions"]
    assert again["lastTransitionTime"] == "2026-01-02T03:05:05Z"


def test_a_success_is_complete_whatever_the_log_said_last() -> None:
    manifest = training_job()
    ended = case(manifest, job=batch_job(manifest, ended="Complete"), facts=facts(3, 1))
    status = status_of(ended, None, CREATED_S)
    assert (status["phase"], status["progress"], status["completionTime"]) == ("Succeeded", 100, NOW)
    assert {each["type"]: each["status"] for each in status["conditions"]} == {"Admitted": "True", "Complete": "True"}
    assert "remainingSeconds" not in status


def test_a_waiting_job_says_what_it_waits_for() -> None:
    status = status_of(case(training_job()), target(admitted=False), CREATED_S)
    assert (status["phase"], status["reason"], status["startTime"]) == ("Waiting", "because", None)
    assert status_of(suspended(), target(admitted=False), CREATED_S)["phase"] == "Suspended"


def test_an_invalid_job_says_what_is_wrong() -> None:
    invalid = Case(key="team/clicks", manifest=training_job(), spec=None, problem="spec.worker.max is 1")
    status = status_of(invalid, None, CREATED_S)
    assert (status["phase"], status["reason"]) == ("Invalid", "spec.worker.max is 1")


def test_a_refused_step_is_the_reason() -> None:
    status = status_of(running(3), target(), CREATED_S, refusal="Kubernetes refuses to create Job clicks")
    assert status["reason"] == "Kubernetes refuses to create Job clicks"
