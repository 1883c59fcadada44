"""What pods are for a plan."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.resources import Amounts


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a job that stays, or that this decision starts."""

    pod: str
    job: str
    role: Role
    node: str


@dataclass(frozen=True, slots=True)
class Staying:
    """A pod of a job that stays; ``is_waiting``: its node does not hold it yet; ``is_stuck``: it can't start."""

    member: Member
    is_waiting: bool = False
    is_stuck: bool = False


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


Entry = Staying | Leaving | Other
"""What a pod is for the plan."""


def job_of(entry: Entry | None) -> str:
    """The job of a pod that stays or leaves; empty: it has none."""
    match entry:
        case Staying(member=member):
            return member.job
        case Leaving(job=job):
            return job
    return ""


def node_of(entry: Entry) -> str:
    """The node where a pod stands; empty: it has none."""
    return entry.member.node if isinstance(entry, Staying) else entry.node
