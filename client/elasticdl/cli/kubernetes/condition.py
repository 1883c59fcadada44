"""What the objects of a job say about it, without its event log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.kubernetes.manifests.job_objects import FAILED_CODES
from elasticdl.master.container import HEALTHY_S
from elasticdl.shared.kubernetes import pod_status
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import PREPARE_CONTAINER, SUBMIT_CONTAINER
from elasticdl.shared.kubernetes.pod_status import StartProblem
from elasticdl.shared.kubernetes.quantities import format_bytes, parse_bytes
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import Service
from elasticdl.shared.pods.causes import classify_exit
from elasticdl.shared.pods.log_lines import explaining_lines, readable_lines

PENDING, PLANNING, RUNNING = "pending", "planning", "running"
"""States of a job whose event log is not read: its pod waits, the container ``submit`` runs, or the master does."""
_STOPPED = "The job was stopped"
"""How the termination message of a master begins whose job was stopped."""
FAILED_BY_MASTER = "The job has failed."
"""How that of a master begins that has written to the event log why its job has failed."""
_SUCCEEDED, _FAILED = ("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")
"""Conditions of a Job that will not start another pod; the first of each: and has no terminating one."""


def condition_of(job: Manifest, pods: Sequence[Manifest]) -> Condition:
    """The condition of a job."""
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
    is_waiting = ended is None and not any(map(_is_running, pods))
    return Condition(
        is_running=ended is None,
        state=state,
        message=message,
        kill_command=f"kubectl delete job {name} --namespace={namespace}",
        interruption=message.rstrip(".") or "its Kubernetes Job has ended",
        waiting=_problem(pods, is_planned) if is_waiting else "",
        can_terminate=not is_planned,  # A deleted job can't be resumed.
    )


def latest(pods: Sequence[Manifest]) -> Manifest | None:
    """The pod that was created last."""
    return max(pods, key=_age, default=None)


def _problem(pods: Sequence[Manifest], is_planned: bool) -> str:
    """Why no master of a job runs. What former pods say counts until one has planned the job, then that of the last."""
    newest = sorted(pods, key=_age, reverse=True)
    problems = (start_problem(pod) for pod in (newest[:2] if is_planned else newest))
    return next((problem.text for problem in problems if problem), "")


def _age(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def termination_message(pod: Manifest) -> str:
    """What the last container to fail in a master's pod has left for people; empty: none has failed."""
    failed = _failed(pod)
    return _end_of(pod, *failed) if failed else str(pod.get("status", {}).get("message", ""))


def _failed(pod: Manifest) -> tuple[str, Manifest] | None:
    """The last container to fail, and its end; None: none has failed."""
    ends = [(name, state["terminated"]) for name, state in container_states(pod) if state.get("terminated")]
    return next((end for end in reversed(ends) if _has_failed(end[1])), None)


def _has_failed(terminated: Manifest) -> bool:
    """Whether a container has failed. The kubelet says 0 of one in which the kernel killed another process."""
    return bool(_code(terminated)) or _lacked_memory(terminated)


def _end_of(pod: Manifest, name: str, terminated: Manifest) -> str:
    if not _lacked_memory(terminated):
        text = terminated.get("message", "").strip()
        lines = text.splitlines()
        if any(line.startswith("{") for line in lines):  # It left no message, and this is the end of its log.
            text = explaining_lines(readable_lines(lines), ExitCause.REFUSED)
        return text or f"container {name} has ended with exit code {_code(terminated)}"
    # The message is only the end of its log.
    flags, limit_bytes = "worker" if name == SUBMIT_CONTAINER else "master", _memory_limit(pod, name)
    allowed = f" (limit {format_bytes(limit_bytes)})" if limit_bytes else ""
    more = format_bytes(2 * limit_bytes) if limit_bytes else "QUANTITY"
    who = "the master" if name == Service.MASTER else f"container {name}"
    return f"{who} ran out of memory{allowed}. Start the job with more: --{flags}_resource_request=memory={more}"


def _lacked_memory(terminated: Manifest) -> bool:
    return classify_exit(_code(terminated), terminated.get("reason", "")) is ExitCause.OUT_OF_MEMORY


def _code(terminated: Manifest) -> int:
    return int(terminated.get("exitCode") or 0)


def _memory_limit(pod: Manifest, container: str) -> int:
    """The memory limit of a container, in bytes; 0: it has none."""
    spec = pod.get("spec", {})
    containers = {each["name"]: each for each in (*spec.get("initContainers", ()), *spec.get("containers", ()))}
    limit = containers.get(container, {}).get("resources", {}).get("limits", {}).get("memory")
    return parse_bytes(limit) if limit else 0


def memory_kills(pods: Iterable[Manifest]) -> tuple[int, int]:
    """How many masters' pods have run out of memory in a row. A master that ran for ``HEALTHY_S`` ends the row.

    Returns:
        Their number, and the memory limit of the last one in bytes.
    """
    limits = []
    for pod in sorted(pods, key=_age, reverse=True):
        if (failed := _failed(pod)) is None:
            continue
        name, ended = failed
        if name != Service.MASTER and not _lacked_memory(ended):
            continue  # No master has started.
        if not _lacked_memory(ended) or _ran_s(ended) >= HEALTHY_S:
            break
        limits.append(_memory_limit(pod, name))
    return len(limits), limits[0] if limits else 0


def _ran_s(terminated: Manifest) -> float:
    started, finished = (datetime.fromisoformat(terminated[each]) for each in ("startedAt", "finishedAt"))
    return (finished - started).total_seconds()


def refusal(pod: Manifest) -> str:
    """Why a container before the master refuses the job for good; empty: none does, or Kubernetes tries again."""
    states = dict(container_states(pod))
    for name in (PREPARE_CONTAINER, SUBMIT_CONTAINER):
        terminated = states.get(name, {}).get("terminated") or {}
        if terminated.get("exitCode") in FAILED_CODES or _lacked_memory(terminated):
            return _end_of(pod, name, terminated)
    return ""


def has_planned(pod: Manifest) -> bool:
    """Whether the container ``submit`` of a pod has ended with success."""
    return any(
        name == SUBMIT_CONTAINER and "terminated" in state and not _has_failed(state["terminated"])
        for name, state in container_states(pod)
    )


def is_preparing(pod: Manifest) -> bool:
    """Whether the container ``prepare`` of a pod runs."""
    return "running" in dict(container_states(pod)).get(PREPARE_CONTAINER, {})


def is_planning(pod: Manifest) -> bool:
    """Whether the container ``submit`` of a pod has started, so that it has a log."""
    state = dict(container_states(pod)).get(SUBMIT_CONTAINER, {})
    return "running" in state or "terminated" in state


def start_problem(pod: Manifest) -> StartProblem | None:
    """Why a master's pod does not start, or ends and starts again, as far as it shows; None: nothing is wrong."""
    if message := termination_message(pod):
        text = f"Kubernetes starts the master's pod again, which has ended: {message}"
        if not has_planned(pod):
            text += f"\nTo check the namespace: elasticdl doctor --namespace={pod['metadata'].get('namespace', '')}"
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
    return str(dict(container_states(pod)).get(Service.MASTER.value, {}).get("terminated", {}).get("message", ""))


def _live_state(pod: Manifest | None) -> str:
    if pod is None:
        return PENDING
    if _is_running(pod):
        return RUNNING
    return PLANNING if "running" in dict(container_states(pod)).get(SUBMIT_CONTAINER, {}) else PENDING


def _is_running(pod: Manifest) -> bool:
    return "running" in dict(container_states(pod)).get(Service.MASTER.value, {})


def container_states(pod: Manifest) -> Iterator[tuple[str, Manifest]]:
    """(name, state) of each container, in the order in which they start."""
    status = pod.get("status", {})
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield each["name"], each.get("state") or {}
