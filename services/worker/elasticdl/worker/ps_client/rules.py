"""What the answers of several ps mean: pure decisions, without sockets or time. The simulation uses them too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elasticdl.shared.errors import ProtocolError, TransientError, UserError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import PullReply, PushReply, PushVerdict, Refusal, RefusalKind, Reply
from elasticdl.worker.ps_client.requests import PushOutcome, Standing

BatchReply = PushReply | messages.NextBatchReply
"""Of a ps that was pushed to, and of one that has the batch and was asked only where the task stands."""


class PinLostError(TransientError):
    """The evaluation's pinned state is gone, because a ps was restarted or the pin was closed."""


class MovedError(TransientError):
    """Groups have moved: the request is to be split again, by a later version of the placement."""


def is_same_life(found: str, registered: Incarnation) -> bool:
    """Whether the ps that answers at an address is the one that the register names; another one is not talked to."""
    return found == registered


def why_not_ready(reply: Reply) -> Refusal | None:
    """The refusal of a ps that is only not ready yet; the request is to be sent again.

    Raises:
        UserError: the ps says that the user's input is wrong.
        PinLostError: the pin that was asked for is not open.
        MovedError: the ps knows a later version of the placement.
        ProtocolError: the ps says that the request is wrong.
    """
    if not isinstance(reply, Refusal):
        return None
    match reply.kind:
        case RefusalKind.NOT_READY | RefusalKind.NOT_INITIALISED:
            return reply
        case RefusalKind.USER:
            raise UserError(reply.message)
        case RefusalKind.NO_PIN:
            raise PinLostError(reply.message)
        case RefusalKind.MOVED:
            raise MovedError(reply.message)
        case _:
            raise ProtocolError(f"the ps refused ({reply.kind.name}): {reply.message}")


def wants_initial_values(refusal: Refusal) -> bool:
    """Whether a ps that is not ready died before its first snapshot and has to be offered the initial values again."""
    return refusal.kind is RefusalKind.NOT_INITIALISED


def has_model_on_record(reply: Reply) -> bool:
    """Whether an answer proves that the ps' first snapshot is registered: it will not need the initial values again."""
    return isinstance(reply, PullReply | PushReply)


def standing_of(
    replies: Mapping[PodName, messages.NextBatchReply], lives: Mapping[PodName, Incarnation], version: int
) -> Standing:
    """Where a task stands over all groups: at the batch that the most backward one wants.

    Args:
        replies: what each ps answered.
        lives: incarnation of each ps that answered.
        version: of the placement by which all of them answered.
    """
    return Standing(
        next_batch=min([reply.next_batch for reply in replies.values()]),
        credits=MappingProxyType(dict(lives)),
        placement_version=version,
    )


def outcome_of(
    replies: Mapping[PodName, BatchReply], lives: Mapping[PodName, Incarnation], version: int
) -> PushOutcome:
    """What became of a push, over all groups; arguments as ``standing_of``."""
    pushed = [reply for reply in replies.values() if isinstance(reply, PushReply)]
    return PushOutcome(
        next_batch=min([reply.next_batch for reply in replies.values()]),
        credits=MappingProxyType(dict(lives)),
        placement_version=version,
        step=max([reply.step for reply in pushed], default=0),
        not_finite="; ".join([reply.message for reply in pushed if reply.verdict is PushVerdict.NOT_FINITE]),
    )
