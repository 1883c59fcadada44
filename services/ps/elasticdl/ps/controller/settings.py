"""Which ps a controller decides for, and its policies."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.shared.job.spec import InitialModel
from elasticdl.shared.names import Incarnation, PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Which ps this is, and its policies.

    Attributes:
        address: ``host:port`` that workers are told.
        initial: weights that a new model starts from; None: those that a worker sends.
        evaluation_steps: publish ``StepReached`` every N steps; 0 disables.
    """

    ps: PodName
    incarnation: Incarnation
    address: str
    policy: SnapshotPolicy
    initial: InitialModel | None = None
    evaluation_steps: int = 0
