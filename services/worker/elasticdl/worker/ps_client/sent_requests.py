"""Requests that were sent to every ps, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import PullReply
from elasticdl.worker.ps_client.connection import PendingRequest
from elasticdl.worker.ps_client.requests import PushRequest
from elasticdl.worker.ps_client.splitter import Split, Splitter
from elasticdl.worker.ps_client.steps import Answer

_R = TypeVar("_R", bound=messages.Reply)
_T = TypeVar("_T")


class Order(Enum):
    """Which ps gets a request first. The gate bounds the staleness, see docs/adr/0010-asynchronous-training.md."""

    TOGETHER = "together"
    GATE_FIRST = "gate first"
    GATE_LAST = "gate last"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that was sent to every ps.

    Attributes:
        split: splits the request by a placement; called again if groups move.
        splitter: the placement by which it was split.
        order: which ps gets it first.
        stages: positions of the ps; those of the second stage get the request once those of the first have answered.
        pending: one request per ps; None: not sent yet.
    """

    split: Callable[[Splitter], Split]
    splitter: Splitter
    parts: Split
    order: Order
    stages: tuple[Sequence[int], ...]
    pending: list[PendingRequest | None]


@dataclass(frozen=True, slots=True)
class Settled:
    """The answers of all ps by one version of the placement.

    Attributes:
        sent: what they answered; its placement may be later than that of the first try.
        answers: one per ps, in the splitter's order.
        repeated: whether any ps was sent the request more than once.
    """

    sent: SentRequest
    answers: Sequence[Answer]
    repeated: bool

    @property
    def incarnations(self) -> Mapping[PodName, Incarnation]:
        """The incarnation of each ps that answered."""
        return self.by_ps([answer.incarnation for answer in self.answers])

    def replies(self, kind: type[_R]) -> list[_R]:
        """The replies, which must all be of one kind; the caller releases the answers."""
        return [checked(answer, kind) for answer in self.answers]

    def by_ps(self, values: Sequence[_T]) -> Mapping[PodName, _T]:
        """Values in the splitter's order, by name of the ps."""
        return dict(zip(self.sent.splitter.ps, values, strict=True))

    def iterations(self) -> Mapping[PodName, int]:
        """The answers of a pull: by ps the optimizer updates up to its state."""
        return self.by_ps([checked(answer, PullReply).iteration for answer in self.answers])

    def release(self) -> None:
        """Return all receive buffers."""
        for answer in self.answers:
            answer.release()


@dataclass(frozen=True, slots=True)
class SentPush:
    """A push under way. ``refused`` says where the gradients are NaN or infinite; such a push was not sent."""

    request: PushRequest
    sent: SentRequest | None
    refused: str = ""


def stages_of(splitter: Splitter, order: Order) -> tuple[Sequence[int], ...]:
    """Positions of the ps in the stages in which they get a request."""
    everywhere = range(len(splitter.ps))
    if order is Order.TOGETHER or len(everywhere) == 1:
        return (everywhere,)
    stages = ((splitter.gate,), tuple(number for number in everywhere if number != splitter.gate))
    return stages if order is Order.GATE_FIRST else stages[::-1]


def checked(answer: Answer, kind: type[_R]) -> _R:
    """The reply of an answer.

    Raises:
        ProtocolError: it is of another kind.
    """
    if not isinstance(answer.reply, kind):
        raise ProtocolError(f"a ps answered with {type(answer.reply).__name__}, not {kind.__name__}")
    return answer.reply
