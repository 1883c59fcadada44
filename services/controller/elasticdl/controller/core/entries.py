"""What pods are for a plan."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from elasticdl.controller.core.cluster import Phase, Pod, Role, Start
from elasticdl.controller.core.resources import Amounts, Units
from elasticdl.controller.core.view import View


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod of a job that is about to leave since an earlier decision; no node: it has none."""

    job: str
    role: Role
    node: str


@dataclass(frozen=True, slots=True)
class Other:
    """A pod of others that takes room on a node."""

    node: str
    request: Amounts


Entry = Start | Leaving | Other
"""What a pod is for the plan."""


def job_of(entry: Entry | None) -> str:
    """The job of a pod that stays or leaves; empty: it has none."""
    return "" if entry is None or isinstance(entry, Other) else entry.job


def is_waiting(pod: Pod | None) -> bool:
    """Whether the node of a pod that stays does not hold it yet."""
    return pod is None or pod.phase is Phase.PENDING


def entry_of(name: str, view: View, jobs: Container[str], nodes: Container[str], units: Units) -> Entry | None:
    """What a pod is for the plan by the view. Expected starts count as pods, and expected drains as gone."""
    pod, is_gone = view.pods.get(name), name in view.drains
    if pod is None:
        start = view.starts.get(name)
        if start is None or is_gone or start.job not in jobs or start.node not in nodes:
            return None
        return start
    node, phase, role = pod.node if pod.node in nodes else "", pod.phase, pod.role
    if role and pod.job in jobs:
        if is_gone or phase is Phase.LEAVING:
            return Leaving(pod.job, role, node)
        return Start(name, pod.job, role, node) if node else None
    if node and phase is not Phase.LEAVING:
        return Other(node, units.amounts(pod.request))
    return None
