"""The pods of a job as its log tells of them, and the deliveries that workers have in hand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import NOBODY, Incarnation, PodName, Service


class PodPhase(Enum):
    """How a pod stands."""

    ORDERED = "ordered"
    """StartPod was decided; nobody has confirmed it."""
    STARTING = "starting"
    """Its process exists and has not said anything."""
    RUNNING = "running"
    """It said that it is ready."""
    STOPPING = "stopping"
    """StopPod was decided."""
    EXITED = "exited"


@dataclass(slots=True, kw_only=True)
class Pod:
    """One name under which processes live, one after the other.

    Attributes:
        name: e.g. ``worker-0``.
        service: worker or ps.
        phase: how it stands.
        pid: process id of the present or last process.
        incarnation: id of the present life, empty until it has said something.
        address: ps: where it serves.
        with_model: ps: the last life that said that it holds its part of the model.
        starts: processes started under this name.
        faults: own-fault exits in a row without progress in between.
        notes: worker: its start-up lines.
        goodbye: worker: the last life that said that it ends.
        is_silent: it was not heard of for too long and has to be replaced.
        claim: ps: number of the claim of the last life that said that it serves.
        early: what a process said of its start before its keeper said that it was started.
    """

    name: PodName
    service: Service
    phase: PodPhase = PodPhase.ORDERED
    pid: int = 0
    incarnation: Incarnation = NOBODY
    address: str = ""
    with_model: Incarnation = NOBODY
    starts: int = 0
    faults: int = 0
    notes: tuple[str, ...] = ()
    goodbye: Incarnation = NOBODY
    is_silent: bool = False
    claim: int = 0
    early: Envelope | None = None

    @property
    def has_model(self) -> bool:
        """Ps: whether the present life holds its part of the model."""
        return bool(self.incarnation) and self.with_model == self.incarnation


@dataclass(slots=True, kw_only=True)
class Holding:
    """A delivery in somebody's hands.

    Attributes:
        worker: who has it.
        incarnation: in which life.
        dispatch: which publication of the task it is of.
        attempt: which delivery of that.
        reply: subject through which anybody may give it back.
        since_s: when the worker said so.
    """

    worker: PodName
    incarnation: Incarnation
    dispatch: int
    attempt: int
    reply: str
    since_s: float
