"""What the answers of several ps mean. Pure: no sockets, no time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from elasticdl.shared.errors import ProtocolError, TransientError, UserError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import PullReply, PushReply, PushVerdict, Refusal, RefusalKind, Reply
from elasticdl.worker.ps_client.requests import PushOutcome, PushRequest, TaskProgress

BatchReply = PushReply | messages.NextBatchReply
"""The reply of a ps that got the batch, or of one that had it already and was asked only for its progress."""


class PinLostError(TransientError):
    """The model that is to be read, pinned or audited, is gone: a ps restarted or the pin was closed."""


class PullDelayedError(TransientError):
    """The weights for the batch are not to be pulled yet; ask again."""


class MovedError(TransientError):
    """Groups have moved: the request has to be split again by a later version of the placement."""


def is_registered_incarnation(found: str, registered: Incarnation) -> bool:
    """Whether the process that answers at an address is the one that the register names. Others are refused."""
    return found == registered


def why_not_ready(reply: Reply) -> Refusal | None:
    """The refusal of a ps that is not ready yet; the request has to be sent again.

    Raises:
        UserError: the ps says that the user's input is wrong.
        PinLostError: the pinned model is not available.
        PullDelayedError: the batch has to wait for other workers.
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
        case RefusalKind.PULL_DELAYED:
            raise PullDelayedError(reply.message)
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


def progress_of(
    replies: Mapping[PodName, messages.NextBatchReply], incarnations: Mapping[PodName, Incarnation], version: int
) -> TaskProgress:
    """How far a task is: every group has absorbed the batches before the least next batch."""
    return TaskProgress(
        next_batch=min([reply.next_batch for reply in replies.values()]),
        credits=MappingProxyType(dict(incarnations)),
        placement_version=version,
    )


def outcome_of(
    replies: Mapping[PodName, BatchReply], incarnations: Mapping[PodName, Incarnation], version: int
) -> PushOutcome:
    """What became of a push, over all groups; arguments as ``progress_of``."""
    step, staleness, not_finite = 0, None, []
    for reply in replies.values():
        if isinstance(reply, PushReply):
            step = max(step, reply.step)
            if reply.staleness is not None:
                staleness = max(staleness or 0, reply.staleness)
            if reply.verdict is PushVerdict.NOT_FINITE:
                not_finite.append(reply.message)
    return PushOutcome(
        next_batch=min([reply.next_batch for reply in replies.values()]),
        credits=MappingProxyType(dict(incarnations)),
        placement_version=version,
        step=step,
        not_finite="; ".join(not_finite),
        staleness=staleness,
    )


def contains_push(request: PushRequest, outcome: PushOutcome, *, sent_once: bool) -> bool:
    """Whether weights that were pulled right behind a push, on the same connections, contain that push for certain.

    Args:
        sent_once: whether every ps got it exactly once; a repeated push may have come after the pull.
    """
    return sent_once and not outcome.not_finite and outcome.next_batch == request.batch + 1
