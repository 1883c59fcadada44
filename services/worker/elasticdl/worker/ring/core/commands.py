"""What the core of a member has the shell do. Each command names its lane; a lane executes its commands in order.

``Lane.LINKS`` never waits, so that a break interrupts everything else at once; ``Lane.TALK`` sends small messages,
``Lane.COPY`` large ones; ``Lane.STATE`` reduces and changes the state; ``Lane.WORKER`` talks to the rest of the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from elasticdl.worker.ring.core.messages import BatchKey, Message, Result, State
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.ports import BatchFacts, Generation


class Lane(Enum):
    """Which commands may overlap: those of different lanes."""

    LINKS = "links"
    TALK = "talk"
    COPY = "copy"
    STATE = "state"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Connect to the leader and to the neighbours of a generation, and accept the other members'.

    Attributes:
        rank: None: this process is no member, and connects only to the leader, to copy its state.
        is_again: the last attempt has failed, so wait a moment.
    """

    lane: ClassVar[Lane] = Lane.LINKS
    generation: Generation
    rank: int | None
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """Close all connections of a generation at once: neighbours notice it, and a blocked reduce returns."""

    lane: ClassVar[Lane] = Lane.LINKS
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a small message to a member of the generation."""

    lane: ClassVar[Lane] = Lane.TALK
    generation: int
    rank: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Send the result of a committed round to a member that lacks it."""

    lane: ClassVar[Lane] = Lane.COPY
    generation: int
    rank: int
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class SendState:
    """Send a copy of the state as it is now, at ``position``. Rounds are committed while it is sent.

    Attributes:
        since: a copy that is being sent already will do, too, if it has so many rounds: all later results are kept.
    """

    lane: ClassVar[Lane] = Lane.STATE
    generation: int
    rank: int
    position: Position
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """Add up weighted gradients of own batches, then over the ring; the outcome is an event.

    Attributes:
        own: keys of the batches whose gradients this member gives, in the order of the plan; the empty ones left out.
        has_gradient: False: all batches of the round are empty, so members only wait for each other.
        records: of all batches of the round that have a gradient.
    """

    lane: ClassVar[Lane] = Lane.STATE
    generation: int
    step: int
    own: Sequence[BatchKey]
    has_gradient: bool
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Commit a round to the state. Gradients of its batches are not needed any more.

    Attributes:
        generation: the open one whose members all commit the round, so that their weights can be compared after it;
            None: this member catches up.
        unneeded: sums of earlier rounds that nothing reads any more.
    """

    lane: ClassVar[Lane] = Lane.STATE
    generation: int | None
    batches: Sequence[BatchFacts]
    gradient: Any
    unneeded: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLast:
    """If the state has all rounds, answer with ``WeightsChecked``: the generation has just opened with it."""

    lane: ClassVar[Lane] = Lane.STATE
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Replace the state by a copy, and drop all gradients; answered with ``StateLoaded``."""

    lane: ClassVar[Lane] = Lane.STATE
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReady:
    """Tell the master that this member waits for a new generation; attributes as ``Membership.report_ready``."""

    lane: ClassVar[Lane] = Lane.WORKER
    left: int
    step: int
    has_model: bool
    reason: str
    is_near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TellDifference:
    """Tell the master that the weights of this member were not those of the others, and that it copies them."""

    lane: ClassVar[Lane] = Lane.WORKER
    step: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Serve this replica, whose state is current now; see ``Leading.lead``."""

    lane: ClassVar[Lane] = Lane.STATE
    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Stop serving, before a copy of another state is loaded; see ``Leading.follow``."""

    lane: ClassVar[Lane] = Lane.STATE
    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """This member takes no part any more."""

    lane: ClassVar[Lane] = Lane.WORKER


RingCommand = (
    Connect
    | Disconnect
    | Send
    | SendResult
    | SendState
    | Reduce
    | Apply
    | CheckLast
    | Load
    | ReportReady
    | TellDifference
    | Lead
    | Follow
    | Left
)
