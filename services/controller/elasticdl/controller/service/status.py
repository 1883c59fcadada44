"""The status of a TrainingJob: what ``kubectl get`` and ``describe`` show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from elasticdl.controller.core import JobTarget, Role
from elasticdl.controller.core import Phase as PodPhase
from elasticdl.controller.service.lifecycle import Case, Phase, job_id
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import JOB_LABEL, selector

_SIGNIFICANT = 4
"""Digits of metrics."""
_CONDITIONS: Mapping[str, frozenset[Phase]] = {
    "Admitted": frozenset({Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING, Phase.SUCCEEDED}),
    "Running": frozenset({Phase.RUNNING}),
    "Suspended": frozenset({Phase.SUSPENDED}),
    "Complete": frozenset({Phase.SUCCEEDED}),
    "Failed": frozenset({Phase.FAILED, Phase.INVALID}),
}
"""Condition -> the phases in which it is true."""


def status_of(case: Case, target: JobTarget | None, now_s: float, refusal: str = "") -> dict[str, Any]:
    """The status now.

    Args:
        target: what the core has decided last; None: nothing, because the job needs nothing.
        refusal: why the last step was refused; empty: it was not.
    """
    former: Manifest = case.manifest.get("status") or {}
    phase, now = case.phase, datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    workers, ps = (_running(case, role) for role in (Role.WORKER, Role.PS))
    message = _message(case, target, refusal)
    status: dict[str, Any] = {
        "phase": phase.value,
        "observedGeneration": case.manifest["metadata"].get("generation", 0),
        "reason": message,
        "conditions": _conditions(former.get("conditions") or [], case, phase, message, now),
    }
    if case.spec is None:
        return status
    job = job_id(case.manifest)
    status |= {
        "job": str(job),
        "workers": workers,
        "workersText": f"{workers} ({case.spec.worker.min}-{case.spec.worker.max})",
        "ps": ps,
        "psText": f"{ps} ({case.spec.ps.min}-{case.spec.ps.max})",
        "selector": selector({JOB_LABEL: str(job)}),
        "startTime": former.get("startTime") or (now if phase is not Phase.WAITING else None),
        "completionTime": former.get("completionTime") or (now if phase.is_final else None),
    }
    return status | _progress(case, phase)


def _message(case: Case, target: JobTarget | None, refusal: str) -> str:
    """Why it stands where it does, in words."""
    condition = case.condition
    if case.spec is None:
        return case.problem
    if case.phase in (Phase.FAILED, Phase.STOPPED) and condition is not None:
        return condition.message or "stopped by a user"
    if case.phase is Phase.SUCCEEDED:
        return "the job has succeeded"
    if refusal:
        return refusal
    if condition is not None and condition.waiting and case.phase is Phase.STARTING:
        return condition.waiting
    return target.reason if target else ""


def _running(case: Case, role: Role) -> int:
    return sum(each.pod.role is role and each.pod.phase is PodPhase.RUNNING for each in case.pods)


def _progress(case: Case, phase: Phase) -> dict[str, Any]:
    former: Manifest = case.manifest.get("status") or {}
    kept = ("progress", "metrics", "goodput")
    if case.facts is None:
        done = {"progress": 100} if phase is Phase.SUCCEEDED else {}
        return {name: former[name] for name in kept if name in former} | done
    progress, remaining_s = case.facts.progress, case.facts.remaining_s
    found: dict[str, Any] = {"progress": 100 if phase is Phase.SUCCEEDED else int(100 * progress.done)}
    if remaining_s is not None and not phase.is_final:
        found["remainingSeconds"] = round(remaining_s)
    metrics = dict(progress.metrics) | ({"loss": progress.loss} if progress.loss is not None else {})
    if metrics:
        found["metrics"] = {name: _rounded(value) for name, value in sorted(metrics.items())}
    if progress.goodput is not None:
        found["goodput"] = _rounded(progress.goodput)
    return found


def _rounded(value: float) -> str:
    """A number as a status has it: a text, because other clients of Kubernetes read fractions differently."""
    return f"{value:.{_SIGNIFICANT}g}"


def _conditions(former: list[Manifest], case: Case, phase: Phase, message: str, now: str) -> list[dict[str, Any]]:
    before = {each["type"]: each for each in former}
    generation = case.manifest["metadata"].get("generation", 0)
    found = []
    for name, phases in _CONDITIONS.items():
        holds = "True" if phase in phases else "False"
        last = before.get(name)
        if last is None and holds == "False":
            continue
        if last is None or last["status"] != holds:
            last = {"message": message, "lastTransitionTime": now}
        found.append(
            {
                "type": name,
                "status": holds,
                "reason": phase.value,
                "message": last.get("message", ""),
                "lastTransitionTime": last["lastTransitionTime"],
                "observedGeneration": generation,
            }
        )
    return found
