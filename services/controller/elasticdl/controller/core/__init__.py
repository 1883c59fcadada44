"""The scheduling core: ``decide(cluster, jobs, now_s) -> Targets``. Pure, total and deterministic.

It keeps no state. ``cluster`` says what the nodes hold and what was ordered before, so the same input gives the same
targets, and a controller that restarts continues where it was. Each target has a reason in words.

Must not import asyncio, sockets, clocks, randomness, the environment, NumPy or any client library.
"""

from elasticdl.controller.core.cluster import Cluster, Drain, Node, Phase, Pod, Role, Start
from elasticdl.controller.core.decide import Planner, decide
from elasticdl.controller.core.job import Curve, Group, Job
from elasticdl.controller.core.placement import ANYWHERE, Constraint, Requirement, Taint, Toleration
from elasticdl.controller.core.policy import Policy
from elasticdl.controller.core.queues import Budget, Queue
from elasticdl.controller.core.targets import JobTarget, Targets
from elasticdl.controller.core.view import Changes, View

__all__ = [
    "ANYWHERE",
    "Budget",
    "Changes",
    "Cluster",
    "Constraint",
    "Curve",
    "Drain",
    "Group",
    "Job",
    "JobTarget",
    "Node",
    "Phase",
    "Planner",
    "Pod",
    "Policy",
    "Queue",
    "Requirement",
    "Role",
    "Start",
    "Taint",
    "Targets",
    "Toleration",
    "View",
    "decide",
]
