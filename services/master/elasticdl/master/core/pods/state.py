"""The pods of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, PodInstance, PodName, Service

EARLY_EVENTS_MAX = 16


class PodPhase(Enum):
    """Phase in a pod's lifecycle."""

    ORDERED = "ordered"
    """The master decided StartPod; its start has not been reported."""
    STARTING = "starting"
    """The process exists and is not ready."""
    WAITING = "waiting"
    """Worker of a job with spare workers: it has built the model, and was not promoted."""
    RUNNING = "running"
    """The process has reported that it is ready."""
    STOPPING = "stopping"
    """The master decided StopPod."""
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowBatch:
    """A batch on which a worker has made no progress for long.

    Attributes:
        work: what the worker does with it, for people.
        since_s: when it began, seconds since 1970, by the worker's clock.
    """

    task: TaskRef
    batch: int
    work: str
    since_s: float


@dataclass(slots=True, kw_only=True)
class Pod:
    """A name under which processes run, one after the other.

    Attributes:
        pending: why a pod that was ordered has not started yet; empty: unknown.
        pending_limit_s: seconds after which the job gives up while ``pending`` stays; 0: never.
        instance: the present process, as its platform names it; empty: none was reported.
        former_instance: the last instance that ended.
        incarnation: what the present process calls itself; empty until it has published an event.
        model_incarnation: ps: the last instance that reported holding its part of the model.
        starts: processes started under this name.
        faults: failures by its own fault in a row, without progress in between.
        refusals: exits in a row because its own environment is refused, while other workers train; of a spare, all that
            are its fault.
        notes: worker: its start-up lines.
        stopped_incarnation: worker: the last instance that published WorkerStopped.
        is_unresponsive: no heartbeat came in time, or no start; the master replaces the process.
        slow: worker: the batch on which it has made no progress for long; None: it makes progress.
        was_unresponsive: the master has ordered the end of the present process for that.
        claim: ps: number of the register claim of the last instance that reported ready.
        is_hosted: ps: the leader of the ring serves under this name, and ``instance`` is its process.
        is_promoted: worker: the present process takes part in the job, or was ordered to.
        was_ready: the present process has reported that it is ready.
        early_events: what a process has sent before its start was reported.
    """

    name: PodName
    service: Service
    phase: PodPhase = PodPhase.ORDERED
    pending: str = ""
    pending_limit_s: float = 0.0
    instance: PodInstance = NO_INSTANCE
    former_instance: PodInstance = NO_INSTANCE
    incarnation: Incarnation = NOBODY
    address: str = ""
    model_incarnation: Incarnation = NOBODY
    starts: int = 0
    faults: int = 0
    refusals: int = 0
    notes: tuple[str, ...] = ()
    stopped_incarnation: Incarnation = NOBODY
    is_unresponsive: bool = False
    was_unresponsive: bool = False
    slow: SlowBatch | None = None
    claim: int = 0
    is_hosted: bool = False
    is_promoted: bool = False
    was_ready: bool = False
    early_events: list[Envelope] = field(default_factory=list)

    @property
    def has_process(self) -> bool:
        """Whether a process runs under this name, as far as it was reported."""
        return bool(self.instance)

    @property
    def has_no_place(self) -> bool:
        """Whether the platform says that the pod that was ordered can't start."""
        return bool(self.pending) and not self.has_process

    @property
    def has_model(self) -> bool:
        """Ps: whether the present instance holds its part of the model."""
        return bool(self.incarnation) and self.model_incarnation == self.incarnation

    def buffer(self, envelope: Envelope) -> None:
        """Keep an event until the start of its sender is reported; only the last ones, if there are many."""
        self.early_events = [*self.early_events, envelope][-EARLY_EVENTS_MAX:]
