"""Runs a Job with one pod, shows its output, and deletes it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from elasticdl.cli.kubernetes.condition import creation_problem, latest, start_problem, termination_message
from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import EVENT, JOB, POD, Manifest
from elasticdl.shared.kubernetes.names import JOB_LABEL, selector

_POLL_S = 0.5
UNREACHABLE_S_MAX = 60.0
"""Seconds without an answer of the API server after which the client gives up."""


def run_once(api: KubernetesApi, manifest: Manifest, show: Callable[[str], None], wait_s_max: float = math.inf) -> None:
    """Create a Job, show the output of its pod until that has ended, and delete the Job.

    Args:
        wait_s_max: seconds that the pod may wait for the same reason.

    Raises:
        UserError: the pod can't start, waits too long, or has failed: its termination message.
    """
    job = api.create(manifest)
    try:
        _follow(api, job, show, wait_s_max)
    finally:
        with contextlib.suppress(ElasticDLError):
            api.delete(JOB, job["metadata"]["name"])


def _follow(api: KubernetesApi, job: Manifest, show: Callable[[str], None], wait_s_max: float) -> None:
    told, printed, told_s = "", 0, time.monotonic()
    answered_s = told_s
    labels = selector({JOB_LABEL: job["metadata"]["name"]})
    while True:
        try:
            pod = latest(api.list(POD, labels=labels).items)
            phase = pod["status"].get("phase", "") if pod else ""
            problem = _waits_for(api, job, pod) if phase in ("", "Pending") else ""
            if pod is not None and phase in ("Running", "Succeeded", "Failed"):
                lines = api.log(pod["metadata"]["name"]).splitlines()
                for line in lines[printed:] if phase != "Failed" else ():
                    show(line)
                printed = len(lines)
            answered_s = time.monotonic()
        except TransientError:
            if time.monotonic() > answered_s + UNREACHABLE_S_MAX:
                raise
            phase, problem = "", told
        if phase == "Succeeded":
            return
        if phase == "Failed":
            raise UserError((pod and termination_message(pod)) or "the pod has failed, and Kubernetes does not say why")
        if problem != told:
            told, told_s = problem, time.monotonic()
            if problem:
                show(f"Waiting: {problem}")
        if problem and time.monotonic() > told_s + wait_s_max:
            raise UserError(f"{problem} (for {wait_s_max:g} seconds)")
        time.sleep(_POLL_S)


def _waits_for(api: KubernetesApi, job: Manifest, pod: Manifest | None) -> str:
    """Why a pod does not start; empty: for nothing special."""
    if pod is None:
        if reason := creation_problem(job, api.list(EVENT).items):
            raise UserError(f"Kubernetes refuses the pod: {reason}")
        return ""
    found = start_problem(pod)
    if found is not None and found.is_final:
        raise UserError(found.text)
    return found.text.replace("the master's pod", "the pod") if found else ""
