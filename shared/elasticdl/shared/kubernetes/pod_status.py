"""What Kubernetes says about a pod, as a ``PodStatus``: why it is pending, and why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from signal import NSIG

from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import COMPONENT_LABEL, NOTE, ORDER_LABEL, POD_LABEL
from elasticdl.shared.kubernetes.pod_manifests import main_container
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.causes import DELETED, OUT_OF_MEMORY, classify_exit
from elasticdl.shared.pods.ports import Ended, Pending, Phase, PodStatus, Running
from elasticdl.shared.process.exit_codes import EXIT_REFUSED
from elasticdl.shared.process.operating_system import SIGNAL_OFFSET
from elasticdl.shared.process.running_batches import WorkerTraces

_NO_PROCESS = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of containers whose command can't be run."""
_ON_THE_WAY = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of containers that start without a problem."""
_PULL_FAILED = frozenset({"ErrImagePull", "ImagePullBackOff"})
_FINAL = frozenset(
    {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "StartError"}
)
"""Reasons that no registry and no node removes by itself."""
_REASON_CHARS_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProblem:
    """Why a pod does not start.

    Attributes:
        has_node: whether it has a node, which can't create a container of it.
    """

    text: str
    has_node: bool
    is_final: bool = False


def status_of(
    pod: Manifest, *, is_deleted: bool = False, is_gone: bool = False, image_pull_s: float = 0.0
) -> PodStatus:
    """The status of a pod that this package has created.

    Args:
        is_deleted: whether ``Pods.delete`` was called for it.
        is_gone: whether the API server has removed it, and the manifest is the last one.
        image_pull_s: seconds for which it may be pending on its node; 0: as long as it takes.
    """
    labels = pod["metadata"]["labels"]
    service = Service(labels[COMPONENT_LABEL])
    return PodStatus(
        pod=PodName(labels[POD_LABEL]),
        service=service,
        creation_seq=int(labels[ORDER_LABEL]),
        instance=PodInstance(pod["metadata"]["uid"]),
        phase=_phase(pod, service, is_deleted, is_gone) or _pending(pod, image_pull_s),
    )


def _phase(pod: Manifest, service: Service, is_deleted: bool, is_gone: bool) -> Phase | None:
    """The phase of a pod; None: it is pending."""
    status = pod.get("status", {})
    state = main_container(status.get("containerStatuses") or (), service).get("state", {})
    if ended := state.get("terminated"):
        return _ended(pod, ended, is_deleted)
    if failed := next(_failed_init_containers(status), None):
        return _ended(pod, failed, is_deleted)
    if is_gone or status.get("phase") in ("Failed", "Succeeded", "Unknown"):
        return _ended_without_trace(pod, was_running="running" in state, is_deleted=is_deleted)
    return Running() if "running" in state else None


# --- ended ------------------------------------------------------------------------------------------------------------


def _ended(pod: Manifest, container: Manifest, is_deleted: bool) -> Ended:
    """The end of a pod whose main or init container has terminated."""
    reason, message = container.get("reason", ""), container.get("message", "")
    exit_code = _exit_code(container)
    if reason in _NO_PROCESS:
        return Ended(cause=ExitCause.REFUSED, exit_code=EXIT_REFUSED, log_tail=_shortened(message))
    if reason != OUT_OF_MEMORY:
        reason = _disruption(pod, is_deleted, exit_code) or reason
    traces = WorkerTraces.parse(message)
    return Ended(
        cause=classify_exit(exit_code, reason, is_deleted=is_deleted),
        exit_code=exit_code,
        running_batches=traces.running_batches,
        batches=traces.batches,
    )


def _ended_without_trace(pod: Manifest, *, was_running: bool, is_deleted: bool) -> Ended:
    """The end of a pod of whose main container nothing is known: evicted, refused by its node, or lost with it."""
    if is_deleted:
        return Ended(cause=ExitCause.STOPPED)
    reason = _disruption(pod, is_deleted, 0)
    cause = classify_exit(0, reason)
    if reason == DELETED or cause is ExitCause.FINISHED:
        cause = ExitCause.NODE_LOST if was_running else ExitCause.PREEMPTED
    return Ended(cause=cause, log_tail=_shortened(pod.get("status", {}).get("message", "")))


def _disruption(pod: Manifest, is_deleted: bool, exit_code: int) -> str:
    """The reason why the platform or a user has ended a pod; empty: it has ended by itself."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("reason", ""))
    if reason := status.get("reason"):
        return str(reason)
    is_ending = "deletionTimestamp" in pod["metadata"] and not is_deleted
    obeys = classify_exit(exit_code, is_deleted=True) is ExitCause.STOPPED
    return DELETED if is_ending and obeys else ""


def _exit_code(container: Manifest) -> int:
    code = int(container.get("exitCode", 0))
    return SIGNAL_OFFSET - code if SIGNAL_OFFSET < code < SIGNAL_OFFSET + NSIG else code


def _failed_init_containers(status: Manifest) -> Iterator[Manifest]:
    """The ends of init containers, if they have ended the pod."""
    if status.get("phase") == "Failed":
        for container in status.get("initContainerStatuses") or ():
            ended = container.get("state", {}).get("terminated")
            if ended and ended.get("exitCode"):
                yield ended


# --- pending ----------------------------------------------------------------------------------------------------------


def _pending(pod: Manifest, image_pull_s: float) -> Pending:
    problem = start_problem(pod)
    if problem is None:
        return Pending(reason=pod["metadata"].get("annotations", {}).get(NOTE, ""))
    return Pending(reason=problem.text, limit_s=image_pull_s if problem.has_node else 0.0)


def start_problem(pod: Manifest) -> StartProblem | None:
    """Why a pod does not start, whatever its role; None: nothing is wrong."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = condition.get("message", "").partition(". ")[0]  # Then comes what preemption has tried.
            reason = f"{condition.get('reason', 'not scheduled')}: {message}".rstrip(": ")
            return StartProblem(text=_shortened(reason), has_node=False)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = container.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _PULL_FAILED:
            return StartProblem(text=_pull_failure(message), has_node=True)
        if reason not in _ON_THE_WAY:
            text = _shortened(f"container {container['name']}: {reason}: {message}".rstrip(": "))
            return StartProblem(text=text, has_node=True, is_final=reason in _FINAL)
    return None


def _pull_failure(message: str) -> str:
    """One sentence for both reasons between which a failed pull alternates; the last of several causes."""
    image = re.search(r'image "([^"]+)"', message)
    cause = message.rpartition("failed to ")[2].rpartition("ErrImagePull: ")[2].rpartition("desc = ")[2]
    return _shortened(f"can't pull the image{f' {image[1]}' if image else ''}: {cause}")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _REASON_CHARS_MAX else text[: _REASON_CHARS_MAX - 3] + "..."
