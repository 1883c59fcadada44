"""What the core sees: nodes, pods, and what was ordered but is not seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from elasticdl.controller.core.placement import ANYWHERE, Constraint, Taint
from elasticdl.controller.core.queues import Budget, Queue
from elasticdl.controller.core.resources import Resources


class Role(Enum):
    """What a pod of a job does."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"

    __hash__ = object.__hash__  # Members are singletons. Enum's hashes their names, in Python.


class Phase(Enum):
    """How far a pod is."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    """It drains, or is being deleted. It still holds its room."""
    STUCK = "stuck"
    """It holds its room and can't run, for example because its image can't be pulled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that takes pods, at least those that tolerate its taints."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of a job, or of a service that the plain scheduler places."""

    name: str
    request: Resources
    node: str = ""
    """The node that holds it, or the one that a pending pod is meant for. Empty: the scheduler has not placed it."""
    phase: Phase = Phase.RUNNING
    priority: int = 0
    """Of a service. Pods of jobs have the priority of their job."""
    job: str = ""
    role: Role | None = None
    constraint: Constraint = ANYWHERE
    """Of a service. Pods of jobs have those of their groups."""


class Start(NamedTuple):
    """A pod of a job to start on a node, as soon as the node has the room; plans keep it as long as the pod stays."""

    pod: str
    job: str
    role: Role
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A pod that must hand over its work and leave."""

    pod: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes and pods, and the expectations."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...] = ()
    ordered: tuple[Start | Drain, ...] = ()
    """What was ordered and is neither seen nor refused. It counts as done, so nothing is ordered twice."""
    queues: tuple[Queue, ...] = ()
    budgets: tuple[Budget, ...] = ()
