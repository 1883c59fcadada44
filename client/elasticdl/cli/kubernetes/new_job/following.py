"""Follows a new job on Kubernetes from its creation to its end."""

from __future__ import annotations

import contextlib
import time

from elasticdl.cli import exit_codes
from elasticdl.cli.commands.attach import attach
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.accepted import leaving_lines
from elasticdl.cli.kubernetes.condition import (
    creation_problem,
    has_planned,
    is_planning,
    latest,
    refusal,
    start_problem,
)
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.kubernetes.kinds import EVENT, Manifest
from elasticdl.shared.kubernetes.names import ERROR_PREFIX, SUBMIT_CONTAINER
from elasticdl.shared.kubernetes.pod_status import StartProblem
from elasticdl.shared.kubernetes.templates import IMAGE_PULL_S

POLL_S = 0.5
UNREACHABLE_S_MAX = 60.0
"""Seconds without an answer of the API server after which the client gives up; the job continues."""


def follow(job: KubernetesJobHandle, *, is_new: bool = True, image_pull_s: float = IMAGE_PULL_S) -> int:
    """Show a job until it has ended; Ctrl-C leaves it running.

    Args:
        image_pull_s: seconds after which an image that can't be pulled ends it.

    Raises:
        UserError: the run was refused before it began. Nothing of a new job is left.
    """
    console = JobConsole()
    try:
        _wait_until_planned(job, console, image_pull_s)
    except KeyboardInterrupt:
        console.print_line(leaving_lines(job.arguments))
        return exit_codes.INTERRUPTED
    except UserError:
        if is_new:
            with contextlib.suppress(ElasticDLError):
                job.terminate()  # It did not begin, so leave nothing behind.
        raise
    return attach(job, is_new=True)


def _wait_until_planned(job: KubernetesJobHandle, console: JobConsole, image_pull_s: float) -> None:
    """Wait until the job is on its event log, and show what its container ``submit`` prints."""
    told, answered_s, shown = "", time.monotonic(), 0
    stuck_s = None
    """Since when its node can't create the pod."""
    while True:
        try:
            masters = job.masters()
            pod = latest(masters)
            if any(map(has_planned, masters)):
                return  # Whatever has happened to its master since, the job has begun.
            found = _problem(job, pod)
            problem = found.text if found else job.waits_for(pod)
            stuck_s = (stuck_s or time.monotonic()) if found and found.has_node else None
            if stuck_s and time.monotonic() > stuck_s + image_pull_s:
                raise UserError(f"{problem} (for {image_pull_s:g} s)", hint=_hint(job, problem))
            shown = _show_progress(job, pod, console, shown)
            answered_s = time.monotonic()
        except TransientError:
            if time.monotonic() > answered_s + UNREACHABLE_S_MAX:
                raise
            problem = told
        if problem and problem != told:
            told = problem
            console.print_line(f"Waiting: {problem}")
        time.sleep(POLL_S)


def _problem(job: KubernetesJobHandle, pod: Manifest | None) -> StartProblem | None:
    """Why the job waits; None: for nothing special. Raises ``UserError``: it waits in vain, or it has failed."""
    condition = job.condition()
    if not condition.is_running:
        raise UserError(condition.message or "the job has failed, and Kubernetes does not say why")
    if pod is None:
        if reason := creation_problem(job.job_object(), job.api.list(EVENT).items):
            raise UserError(f"Kubernetes refuses the master's pod: {reason}", hint=_hint(job, reason))
        return None
    if message := refusal(pod):
        raise UserError(message)
    found = start_problem(pod)
    if found is not None and found.is_final:
        raise UserError(found.text, hint=_hint(job, found.text))
    return found


def _hint(job: KubernetesJobHandle, problem: str) -> str:
    """The command that shows or repairs the cause of a refusal."""
    namespace = job.api.namespace
    if "PriorityClass" in problem:
        return "Create it: kubectl apply -k deploy/kustomize/base, or give another one with --master_pod_priority."
    if "quota" in problem:
        return f"See what is used: kubectl describe resourcequota --namespace={namespace}"
    if "serviceaccount" in problem or "secret" in problem:
        return f"Set the namespace up: kubectl apply -k deploy/kustomize/base --namespace={namespace}"
    if "image" in problem:
        return "Check --image_name, --master_image, --ps_image and --image_pull_secrets."
    return f"For details: kubectl describe job {job.job} --namespace={namespace}"


def _show_progress(job: KubernetesJobHandle, pod: Manifest | None, console: JobConsole, shown: int) -> int:
    """Print the new lines of the container ``submit``; returns how many were printed in total."""
    if pod is None or not is_planning(pod):
        return shown
    lines = job.api.log(pod["metadata"]["name"], container=SUBMIT_CONTAINER).splitlines()
    for line in lines[shown:]:
        if line.startswith(ERROR_PREFIX):  # It is the termination message too, which is shown with what happens next.
            continue
        console.print_line(line)
    return len(lines)
