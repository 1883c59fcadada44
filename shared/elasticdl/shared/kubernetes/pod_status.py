"""What Kubernetes says about a pod, as a ``PodStatus``: why it is pending, and why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from signal import NSIG

from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import COMPONENT_LABEL, NOTE, ORDER_LABEL, POD_LABEL
from elasticdl.shared.kubernetes.pod_manifests import main_container
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.causes import DELETED, OUT_OF_MEMORY, classify_exit
from elasticdl.shared.pods.ports import Ended, Pending, Phase, PodStatus, Running
from elasticdl.shared.process.exit_codes import EXIT_REFUSED
from elasticdl.shared.process.running_batches import WorkerTraces

_SIGNAL_OFFSET = 128
"""A shell and a container runtime report the end by a signal as this plus its number."""
_NO_PROCESS = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of containers whose command can't be run."""
_ON_THE_WAY = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of containers that start without a problem."""
_PULL_FAILED = frozenset({"ErrImagePull", "ImagePullBackOff"})
_REASON_CHARS_MAX = 300


def status_of(pod: Manifest, *, is_deleted: bool = False, is_gone: bool = False) -> PodStatus:
    """The status of a pod that this package has created.

    Args:
        pod: its manifest.
        is_deleted: whether ``Pods.delete`` was called for it.
        is_gone: whether the API server has removed it, and the manifest is the last one.
    """
    labels = pod["metadata"]["labels"]
    service = Service(labels[COMPONENT_LABEL])
    return PodStatus(
        pod=PodName(labels[POD_LABEL]),
        service=service,
        order=int(labels[ORDER_LABEL]),
        instance=PodInstance(pod["metadata"]["uid"]),
        phase=_phase(pod, service, is_deleted, is_gone),
    )


def _phase(pod: Manifest, service: Service, is_deleted: bool, is_gone: bool) -> Phase:
    status = pod.get("status", {})
    state = main_container(status.get("containerStatuses") or (), service).get("state", {})
    if ended := state.get("terminated"):
        return _ended(pod, ended, is_deleted)
    if failed := next(_failed_init_containers(status), None):
        return _ended(pod, failed, is_deleted)
    if is_gone or status.get("phase") in ("Failed", "Succeeded", "Unknown"):
        return _ended_without_trace(pod, was_running="running" in state, is_deleted=is_deleted)
    if "running" in state:
        return Running()
    return Pending(reason=_pending_reason(pod, state) or pod["metadata"].get("annotations", {}).get(NOTE, ""))


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
    return _SIGNAL_OFFSET - code if _SIGNAL_OFFSET < code < _SIGNAL_OFFSET + NSIG else code


def _failed_init_containers(status: Manifest) -> Iterator[Manifest]:
    """The ends of init containers, if they have ended the pod."""
    if status.get("phase") == "Failed":
        for container in status.get("initContainerStatuses") or ():
            ended = container.get("state", {}).get("terminated")
            if ended and ended.get("exitCode"):
                yield ended


# --- pending ----------------------------------------------------------------------------------------------------------


def _pending_reason(pod: Manifest, state: Manifest) -> str:
    """Why a pod has not started, for people; empty: it is on the way."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = condition.get("message", "").partition(". ")[0]  # Then comes what preemption has tried.
            return _shortened(f"{condition.get('reason', 'not scheduled')}: {message}".rstrip(": "))
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("initContainerStatuses") or ()]
    for container in (*waiting, state.get("waiting", {})):
        reason, message = container.get("reason", ""), container.get("message", "")
        if reason in _PULL_FAILED:
            return _pull_failure(message)
        if reason not in _ON_THE_WAY:
            return _shortened(f"{reason}: {message}".rstrip(": "))
    return ""


def _pull_failure(message: str) -> str:
    """One sentence for both reasons between which a failed pull alternates; the last of several causes."""
    image = re.search(r'image "([^"]+)"', message)
    cause = message.rpartition("failed to ")[2].rpartition("ErrImagePull: ")[2].rpartition("desc = ")[2]
    return _shortened(f"can't pull the image {image[1] if image else ''}: {cause}")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _REASON_CHARS_MAX else text[: _REASON_CHARS_MAX - 3] + "..."
