"""What the objects of a job say about it."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.cli.kubernetes.condition import (
    condition_of,
    creation_problem,
    has_planned,
    is_planning,
    latest,
    refusal,
    start_problem,
    termination_message,
)
from elasticdl.shared.kubernetes.kinds import Manifest


def job(*conditions: Manifest) -> Manifest:
    return {"metadata": {"name": "a-1", "namespace": "team", "uid": "u"}, "status": {"conditions": list(conditions)}}


def pod(submit: Manifest, master: Manifest | None = None, **status: Any) -> Manifest:
    containers = [{"name": "master", "state": master}] if master else []
    return {
        "metadata": {"name": "a-1-x", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {
            "initContainerStatuses": [{"name": "submit", "state": submit}],
            "containerStatuses": containers,
            **status,
        },
    }


DONE = {"terminated": {"exitCode": 0}}
REFUSED = {"terminated": {"exitCode": 1, "message": "the data is missing\n"}}
FAILED = {"type": "Failed", "status": "True", "message": "Container submit has failed with exit code 1"}


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([], "pending"),
        ([pod({"waiting": {"reason": "PodInitializing"}})], "pending"),
        ([pod({"running": {}})], "planning"),
        ([pod(DONE, {"running": {}})], "running"),
    ],
)
def test_a_job_without_an_end_is_running(pods: list[Manifest], state: str) -> None:
    condition = condition_of(job(), pods)
    assert (condition.is_running, condition.state) == (True, state)
    assert condition.kill_command == "kubectl delete job a-1 --namespace=team"


def test_the_end_of_a_job_is_that_of_its_objects() -> None:
    succeeded = condition_of(job({"type": "Complete", "status": "True"}), [pod(DONE, DONE)])
    assert (succeeded.is_running, succeeded.state, succeeded.message) == (False, "succeeded", "")
    stopped = {"terminated": {"exitCode": 0, "message": "The job was stopped (elasticdl stop)."}}
    assert condition_of(job({"type": "Complete", "status": "True"}), [pod(DONE, stopped)]).state == "stopped"
    failed = condition_of(job(FAILED), [pod(REFUSED)])
    assert (failed.is_running, failed.state, failed.message) == (False, "failed", "the data is missing")
    assert condition_of(job(FAILED), []).message == "Container submit has failed with exit code 1"


def test_a_pod_on_a_lost_node_does_not_hide_the_end_of_a_job() -> None:
    """Kubernetes adds Complete and Failed only when that pod is gone."""
    lost = pod(DONE, {"running": {}})
    successor = pod(DONE, DONE)
    successor["metadata"]["creationTimestamp"] = "2026-01-01T00:02:00Z"
    succeeded = condition_of(job({"type": "SuccessCriteriaMet", "status": "True"}), [lost, successor])
    assert (succeeded.is_running, succeeded.state) == (False, "succeeded")
    refused = pod(DONE, REFUSED)
    refused["metadata"]["creationTimestamp"] = "2026-01-01T00:02:00Z"
    failed = condition_of(job({**FAILED, "type": "FailureTarget"}), [lost, refused])
    assert (failed.is_running, failed.state, failed.message) == (False, "failed", "the data is missing")


def test_the_container_submit_is_followed() -> None:
    waiting = pod({"waiting": {"reason": "PodInitializing"}})
    assert not is_planning(waiting) and not has_planned(waiting)
    assert is_planning(pod({"running": {}})) and not has_planned(pod({"running": {}}))
    assert has_planned(pod(DONE, {"running": {}})) and not has_planned(pod(REFUSED))
    assert (
        termination_message(pod({"terminated": {"exitCode": 137}})) == "container submit has ended with exit code 137"
    )
    assert termination_message(pod(DONE, {"running": {}})) == ""


@pytest.mark.parametrize(
    ("state", "text", "is_final"),
    [
        (
            {"waiting": {"reason": "ErrImagePull", "message": 'image "x:1": desc = no such host'}},
            "the master's pod can't start: can't pull the image x:1: no such host",
            False,
        ),
        ({"waiting": {"reason": "InvalidImageName", "message": "X"}}, "container submit: InvalidImageName: X", True),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "elasticdl" not found'}},
            'container submit: CreateContainerConfigError: secret "elasticdl" not found',
            True,
        ),
        ({"waiting": {"reason": "Other", "message": "x"}}, "container submit: Other: x", False),
    ],
)
def test_a_container_that_does_not_start_is_explained(state: Manifest, text: str, is_final: bool) -> None:
    problem = start_problem(pod(state))
    assert problem is not None
    assert (text in problem.text, problem.is_final) == (True, is_final)
    assert start_problem(pod({"running": {}})) is None


def test_a_pod_without_a_node_waits() -> None:
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available.",
    }
    problem = start_problem(pod({"waiting": {}}, conditions=[unschedulable]))
    assert problem is not None and not problem.is_final
    assert problem.text == ("the master's pod can't start: not scheduled: 0/1 nodes are available: 1 Insufficient cpu")


def test_a_pod_that_has_ended_before_the_job_began_is_started_again() -> None:
    problem = start_problem(pod({"terminated": {"exitCode": 75, "message": "no NATS answers"}}))
    assert problem is not None and not problem.is_final
    assert problem.text.startswith("Kubernetes starts the master's pod again, which has ended: no NATS answers\n")
    successor = pod({"running": {}})
    successor["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    assert "has ended: the data is missing\n" in condition_of(job(), [pod(REFUSED), successor]).waiting
    assert condition_of(job(), [pod(REFUSED), pod(DONE, {"running": {}})]).waiting == ""
    waiting = condition_of(job(), [pod({"waiting": {"reason": "ErrImagePull", "message": "no such host"}})]).waiting
    assert waiting == "the master's pod can't start: can't pull the image: no such host"


def test_the_refusal_of_a_pod_is_that_of_the_job() -> None:
    def refusal(uid: str, message: str) -> Manifest:
        return {"reason": "FailedCreate", "involvedObject": {"uid": uid}, "message": f"Error creating: {message}"}

    events = [refusal("u", "exceeded quota"), refusal("other", "no such class")]
    assert creation_problem(job(), events) == "exceeded quota"
    assert creation_problem(job(), events[1:]) == ""


def test_the_latest_pod_counts() -> None:
    later = pod(DONE)
    later["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    assert latest([later, pod(DONE)]) is later
    assert latest([]) is None


def test_only_an_exit_code_that_ends_the_job_is_a_refusal() -> None:
    killed, unavailable = {"terminated": {"exitCode": 137}}, {"terminated": {"exitCode": 75, "message": "no NATS"}}
    assert refusal(pod(REFUSED)) == "the data is missing"
    assert [refusal(each) for each in (pod(killed), pod(unavailable), pod(DONE, REFUSED), pod({"running": {}}))] == [
        ""
    ] * 4


@pytest.mark.parametrize("exit_code", [0, 137])
def test_a_container_submit_that_ran_out_of_memory_ends_the_job_with_one_sentence(exit_code: int) -> None:
    """The kubelet says exit code 0 if the kernel killed another process than the first one; then no master starts."""
    ended = {"exitCode": exit_code, "reason": "OOMKilled", "message": "the last lines of its log"}
    killed = pod({"terminated": ended}, {"waiting": {"reason": "PodInitializing"}})
    assert not has_planned(killed)
    assert refusal(killed) == (
        "container submit ran out of memory. Start the job with more: --worker_resource_request=memory=QUANTITY"
    )
    assert "container submit ran out of memory" in condition_of(job(), [killed]).waiting


def test_a_master_without_memory_is_said_with_its_limit_until_the_next_one_runs() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "the last lines of its log"}
    killed = pod(DONE, {"terminated": ended})
    killed["spec"] = {"containers": [{"name": "master", "resources": {"limits": {"memory": "256Mi"}}}]}
    text = (
        "Kubernetes starts the master's pod again, which has ended: the master ran out of memory (limit 256Mi). "
        "Start the job with more: --master_resource_request=memory=512Mi"
    )
    successor = pod({"running": {}})
    successor["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    assert condition_of(job(), [killed]).waiting == condition_of(job(), [killed, successor]).waiting == text
    running = {**successor, "status": pod(DONE, {"running": {}})["status"]}
    assert condition_of(job(), [killed, running]).waiting == ""


def test_a_job_that_ended_before_its_log_says_so_was_interrupted_for_the_reason_that_its_pod_gives() -> None:
    ended = pod({"waiting": {}})
    refused = {"exitCode": 1, "message": "the master ran out of memory 3 times in a row (limit 256Mi)."}
    ended["status"]["initContainerStatuses"] = [{"name": "prepare", "state": {"terminated": refused}}]
    ended["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    condition = condition_of(job(FAILED), [pod(DONE, DONE), ended])
    assert condition.interruption == "the master ran out of memory 3 times in a row (limit 256Mi)"
    assert condition_of(job({"type": "Complete", "status": "True"}), []).interruption == "its Kubernetes Job has ended"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ('{"level": "error", "event": "the log is full"}', "error: the log is full"),
        ('{"level": "info", "event": "took over"}', "container master has ended with exit code 143"),
    ],
)
def test_the_end_of_a_log_is_said_as_people_read_it(last: str, said: str) -> None:
    """The kubelet takes it as the message of a container that has left none."""
    log = f'cond": "half a line"}}\n{{"level": "info", "event": "start"}}\n{{"level": "info", "event": "b"}}\n{last}\n'
    log += '{"level": "info", "event": "closed"}\n' * 2
    assert termination_message(pod(DONE, {"terminated": {"exitCode": 143, "message": log}})) == said
