"""Which ps this is, and the cores that its job and its identity ask for."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.ps.controller import ControllerSettings, PsController
from elasticdl.ps.shard.core import Observer, PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, PodInstance, PodName, pod_number
from elasticdl.shared.wire.server import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PsIdentity:
    """Which ps this is.

    Attributes:
        ps: name of the ps; the number at its end is its number in the placement.
        run: incarnation of the launcher that opened this run of the job.
        advertised_host: host name under which workers reach it; empty: the address that it listens on.
        memory_bytes_max: bytes of weights and optimizer state above which pushes are refused; 0: no limit.
        wire: address and limits of the wire server; None: the defaults.
    """

    ps: PodName
    incarnation: Incarnation
    run: Incarnation = NOBODY
    instance: PodInstance = NO_INSTANCE
    token: str
    advertised_host: str = ""
    memory_bytes_max: int = 0
    heartbeat_interval_s: float = 1.0
    metrics_port: int = 0
    wire: ServerSettings | None = None

    def model_core(self, spec: JobSpec, observer: Observer) -> PsCore:
        """The model core of this ps, without a model yet."""
        return PsCore(
            plan=spec.plan,
            placement=Placement.even(spec.ps),
            number=pod_number(self.ps),
            policy=UpdatePolicy.of(spec),
            memory_bytes_max=self.memory_bytes_max,
            observer=observer,
        )

    def controller(self, spec: JobSpec, core: PsCore, address: str) -> PsController:
        """The controller of this ps; ``address``: ``host:port`` that workers are told."""
        settings = ControllerSettings(
            ps=self.ps,
            incarnation=self.incarnation,
            address=address,
            policy=SnapshotPolicy(interval_s=spec.snapshot_interval_s, steps=spec.snapshot_steps),
            initial=spec.initial,
            evaluation_steps=spec.evaluation_steps,
        )
        return PsController(core, SnapshotWriter(spec, self.ps, self.incarnation), settings)
