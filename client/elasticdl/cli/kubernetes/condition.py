"""What the objects of a job say about it, without its event log. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.shared.kubernetes import pod_status
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import PREPARE_CONTAINER, SUBMIT_CONTAINER
from elasticdl.shared.kubernetes.pod_status import StartProblem
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Service
from elasticdl.shared.pods.causes import OUT_OF_MEMORY

PENDING, PLANNING, RUNNING = "pending", "planning", "running"
"""States of a job whose event log is not read: its pod waits, the container ``submit`` runs, or the master does."""
_STOPPED = "The job was stopped"
"""How the termination message of a master begins whose job was stopped."""
_SUCCEEDED, _FAILED = ("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")
"""Conditions of a Job that will not start another pod; the first of each: and has no terminating one."""


def condition_of(job: Manifest, pods: Sequence[Manifest]) -> Condition:
    """The condition of a job.

    Args:
        job: the Job.
        pods: its masters.
    """
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    pod = latest(pods)
    ended = _final_state(job)
    if ended is not None:
        state, message = ended
        message = (message and pod and termination_message(pod)) or message
        if pod and not message and _master_message(pod).startswith(_STOPPED):
            state = JobState.STOPPED.value
    else:
        state, message = _live_state(pod), ""
    is_planned = any(map(has_planned, pods))
    return Condition(
        is_running=ended is None,
        state=state,
        message=message,
        kill_command=f"kubectl delete job {name} --namespace={namespace}",
        interruption="its Kubernetes Job has ended",
        waiting=_problem(pods) if ended is None and not is_planned else "",
        can_terminate=not is_planned,  # A deleted job can't be resumed.
    )


def latest(pods: Sequence[Manifest]) -> Manifest | None:
    """The pod that was created last."""
    return max(pods, key=_age, default=None)


def _problem(pods: Sequence[Manifest]) -> str:
    """Why no master of a job has started; what a former pod says counts until one has planned the job."""
    problems = (start_problem(pod) for pod in sorted(pods, key=_age, reverse=True))
    return next((problem.text for problem in problems if problem), "")


def _age(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def termination_message(pod: Manifest) -> str:
    """What the last container to fail in a master's pod has left for people; empty: none has failed."""
    messages = [
        terminated.get("message", "").strip() or _end_of(name, terminated)
        for name, state in _containers(pod)
        if (terminated := state.get("terminated")) and _has_failed(terminated)
    ]
    return messages[-1] if messages else str(pod.get("status", {}).get("message", ""))


def _has_failed(terminated: Manifest) -> bool:
    """Whether a container has failed. The kubelet says 0 of one in which the kernel killed another process."""
    return bool(terminated.get("exitCode")) or terminated.get("reason") == OUT_OF_MEMORY


def _end_of(name: str, terminated: Manifest) -> str:
    if terminated.get("reason") == OUT_OF_MEMORY:
        flags = "worker" if name == SUBMIT_CONTAINER else "master"
        return (
            f"container {name} ran out of memory. Start the job with more: --{flags}_resource_request=memory=QUANTITY"
        )
    return f"container {name} has ended with exit code {terminated['exitCode']}"


def refusal(pod: Manifest) -> str:
    """Why a container before the master refuses the job for good; empty: none does, or Kubernetes tries again."""
    states = dict(_containers(pod))
    for name in (PREPARE_CONTAINER, SUBMIT_CONTAINER):
        terminated = states.get(name, {}).get("terminated") or {}
        if terminated.get("exitCode") in FAILED_CODES or terminated.get("reason") == OUT_OF_MEMORY:
            return termination_message(pod)
    return ""


def has_planned(pod: Manifest) -> bool:
    """Whether the container ``submit`` of a pod has ended with success."""
    return any(
        name == SUBMIT_CONTAINER and "terminated" in state and not _has_failed(state["terminated"])
        for name, state in _containers(pod)
    )


def is_planning(pod: Manifest) -> bool:
    """Whether the container ``submit`` of a pod has started, so that it has a log."""
    return any(
        name == SUBMIT_CONTAINER and ("running" in state or "terminated" in state) for name, state in _containers(pod)
    )


def start_problem(pod: Manifest) -> StartProblem | None:
    """Why a master's pod does not start, or ends and starts again, as far as it shows; None: nothing is wrong."""
    if not has_planned(pod) and (message := termination_message(pod)):
        check = f"To check the namespace: elasticdl doctor --namespace={pod['metadata'].get('namespace', '')}"
        text = f"Kubernetes starts the master's pod again, which has ended: {message}\n{check}"
        return StartProblem(text=text, has_node=False)
    problem = pod_status.start_problem(pod)
    return replace(problem, text=f"the master's pod can't start: {problem.text}") if problem else None


def creation_problem(job: Manifest, events: Sequence[Manifest]) -> str:
    """Why Kubernetes refuses to create the pod of a job; empty: no event says so."""
    uid = job["metadata"]["uid"]
    refusals = [
        event
        for event in events
        if event.get("reason") == "FailedCreate" and event.get("involvedObject", {}).get("uid") == uid
    ]
    return str(refusals[-1].get("message", "")).removeprefix("Error creating: ") if refusals else ""


def _final_state(job: Manifest) -> tuple[str, str] | None:
    """The state of a Job that has ended, and Kubernetes' own message; None: it has not.

    Complete and Failed wait until no pod of the Job is terminating, which one on a lost node is until that is back.
    """
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in (*_SUCCEEDED, *_FAILED):
            has_failed = condition["type"] in _FAILED
            state = JobState.FAILED if has_failed else JobState.SUCCEEDED
            return state.value, str(condition.get("message", "")) if has_failed else ""
    return None


def _master_message(pod: Manifest) -> str:
    """The termination message of the container ``master``; empty: it has none."""
    return str(dict(_containers(pod)).get(Service.MASTER.value, {}).get("terminated", {}).get("message", ""))


def _live_state(pod: Manifest | None) -> str:
    if pod is None:
        return PENDING
    states = dict(_containers(pod))
    if "running" in states.get(Service.MASTER.value, {}):
        return RUNNING
    return PLANNING if "running" in states.get(SUBMIT_CONTAINER, {}) else PENDING


def _containers(pod: Manifest) -> Iterator[tuple[str, Manifest]]:
    """(name, state) of each container, in the order in which they start."""
    status = pod.get("status", {})
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield each["name"], each.get("state") or {}
