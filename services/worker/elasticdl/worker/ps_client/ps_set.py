"""All ps as one: requests are split, sent to every ps, and the answers put together again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.messages import NO_FLOATS, Floats, Ids
from elasticdl.worker.ps_client.absorbed_batches import Standings
from elasticdl.worker.ps_client.gathering import Gathering
from elasticdl.worker.ps_client.ps_connection import Answer, Link, Pending, PsSetSettings, Resolve
from elasticdl.worker.ps_client.requests import Pulled, PushOutcome, PushRequest, Standing
from elasticdl.worker.ps_client.rules import BatchReply, MovedError, outcome_of, standing_of
from elasticdl.worker.ps_client.splitter import Split, Splitter

_R = TypeVar("_R", bound=messages.Reply)

PULL_ROWS_MAX = 1 << 16
"""Rows of one request of ``pull_rows``."""
_PLACEMENT_POLL_S = 0.005
"""Seconds between two looks for the placement that an answer has told of."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request under way to every ps.

    Attributes:
        split: makes the parts, again if groups move meanwhile.
        splitter: by which version of the placement they were made.
        parts: what was made.
        pending: what was sent.
    """

    split: Callable[[Splitter], Split]
    splitter: Splitter
    parts: Split
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class PullTicket:
    """A pull under way; pass it to ``receive_pull`` once."""

    sent: Sent
    dense: bool


@dataclass(frozen=True, slots=True)
class PushTicket:
    """A push under way; pass it to ``receive_push`` once.

    ``refused``: it was not sent, because NaN or infinity is in it; says where.
    """

    request: PushRequest
    sent: Sent | None
    refused: str = ""


class PsSet:
    """The parameter servers of a job; see the package for threads and arrays.

    Args:
        placement: the latest version of the placement that is known.
        resolve: where each ps is now.
        token: the job's secret.
        peer: who we are, for the logs of the ps.
        plan: the plan's fingerprint.
        signature: the model.
        settings: patience.
    """

    def __init__(
        self,
        *,
        placement: Callable[[], Placement],
        resolve: Resolve,
        token: str,
        peer: str,
        plan: str,
        signature: ModelSignature,
        settings: PsSetSettings | None = None,
    ) -> None:
        self.signature = signature
        self._settings = settings or PsSetSettings()
        self._placement = placement
        self._plan = plan
        self._splitter = Splitter(signature, plan, placement())
        self._dense_size = sum(part.size for part in self._splitter.parts)
        self._numbers = {table.name: number for number, table in enumerate(signature.tables)}
        self._pool = BufferPool()
        self._standings = Standings()
        self._initial: Floats | None = None
        """Kept while some ps may need them again, for when the placement changes before that one has its model."""
        self._resolve = resolve
        self._order = threading.Lock()
        """Held for one fan-out, so that all ps see requests in the same order."""
        self._closing = threading.Event()
        self._links: dict[PodName, Link] = {}
        self._new_link = partial(
            Link, resolve=resolve, token=token, peer=peer, pool=self._pool, settings=self._settings
        )

    def initialise(self, dense: Floats) -> bool:
        """Offer initial values, float32 flat over all variables; the first worker wins on each ps.

        Returns:
            Whether ours were taken by every ps.

        Raises:
            UserError: the job trains another model, or the ps does not know its optimizer.
        """
        if dense.shape != (self._dense_size,):
            raise ValueError(f"{dense.shape} initial values for {self._dense_size} elements")
        self._initial = dense.copy()
        _, answers = self._settle(self._send(lambda splitter: splitter.initialise(dense)))
        taken = [_take(answer, messages.InitialiseReply).first for answer in answers]
        return all(taken)

    def next_batch(self, task: TaskId, batches: int) -> Standing:
        """Where a task of so many batches stands; a worker begins it at the answer's ``next_batch``."""
        sent, answers = self._settle(self._send(lambda splitter: splitter.next_batch(task, batches)))
        said = _by_ps(sent, [_take(answer, messages.NextBatchReply) for answer in answers]), _lives(sent, answers)
        self._standings.note(task, *said, sent.splitter.version)
        return standing_of(*said, sent.splitter.version)

    def send_pull(self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True) -> PullTicket:
        """Ask for rows and dense variables.

        Args:
            ids: by table name; unique int64[n].
            pin: evaluation whose pinned state is read; 0: the present state.
            dense: whether dense variables are wanted.
        """
        return PullTicket(self._send(lambda splitter: splitter.pull(ids, pin=pin, dense=dense)), dense)

    def receive_pull(self, ticket: PullTicket) -> Pulled:
        """Wait for a pull.

        Raises:
            PinLostError: the pin is not open on every ps.
            TransientError: a ps stayed away too long.
            UserError, ProtocolError: a ps refused.
        """
        sent, answers = self._settle(ticket.sent)
        try:
            replies = [_reply(answer, messages.PullReply) for answer in answers]
            gathering = Gathering(self._pool)
            dense = gathering.dense(sent.splitter.parts, replies) if ticket.dense else NO_FLOATS
            rows = gathering.rows(sent.parts.rows, _tables_of(sent), replies)
        except BaseException:
            _release(answers)
            raise
        return Pulled(
            dense=dense,
            rows=MappingProxyType(rows),
            iteration=min([reply.iteration for reply in replies]),
            step=min([reply.step for reply in replies]),
            release=gathering.releasing([answer.release for answer in answers]),
        )

    def pull(self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True) -> Pulled:
        """``send_pull`` and ``receive_pull``."""
        return self.receive_pull(self.send_pull(ids, pin=pin, dense=dense))

    def pull_rows(self, table: str, ids: Ids, *, pin: int = 0) -> Floats:
        """Rows float32[n, width] of one table for any number of ids; the array is the caller's."""
        out = np.empty((ids.size, self.signature.tables[self._numbers[table]].width), np.float32)
        for start in range(0, ids.size, PULL_ROWS_MAX):
            pulled = self.pull({table: ids[start : start + PULL_ROWS_MAX]}, pin=pin, dense=False)
            out[start : start + PULL_ROWS_MAX] = pulled.rows[table]
            pulled.release()
        return out

    def send_push(self, request: PushRequest) -> PushTicket:
        """Send a batch to every ps that has not said that it has it."""
        refused = self._not_finite(request)
        if refused:
            return PushTicket(request, None, refused)
        return PushTicket(request, self._send(partial(self._split_push, request)))

    def receive_push(self, ticket: PushTicket) -> PushOutcome:
        """Wait until every group has answered; errors as ``receive_pull``."""
        request = ticket.request
        if ticket.sent is None:
            return PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=ticket.refused)
        sent, answers = self._settle(ticket.sent)
        said = _by_ps(sent, [_take_pushed(answer) for answer in answers]), _lives(sent, answers)
        self._forget_initial()
        self._standings.note(request.task, *said, sent.splitter.version)
        return outcome_of(*said, sent.splitter.version)

    def push(self, request: PushRequest) -> PushOutcome:
        """``send_push`` and ``receive_push``."""
        return self.receive_push(self.send_push(request))

    def close(self) -> None:
        """Hang up; calls that wait fail with TransientError."""
        self._closing.set()
        with self._order:
            for link in self._links.values():
                link.close()

    def _split_push(self, request: PushRequest, splitter: Splitter) -> Split:
        having = self._standings.having(request.task, request.batch, splitter.version, self._life_of)
        return splitter.push(request, having)

    def _life_of(self, ps: PodName) -> Incarnation | None:
        place = self._resolve().get(ps)
        return place.incarnation if place else None

    def _not_finite(self, request: PushRequest) -> str:
        """Where NaN or infinity is. Several ps must agree on it; one finds it itself, at less cost."""
        if len(self._splitter.ps) == 1:
            return ""
        suspects: list[tuple[str, Floats]] = [("statistics delta", request.statistics_delta)]
        if request.dense_gradient is not None:
            suspects.append(("dense gradient", request.dense_gradient))
        suspects += [(f"gradients of table {name!r}", rows) for name, (_, rows) in request.rows.items()]
        return "; ".join(name for name, values in suspects if not np.isfinite(values).all())

    def _send(self, split: Callable[[Splitter], Split]) -> Sent:
        placement = self._placement()
        if placement.version > self._splitter.version:
            self._splitter = Splitter(self.signature, self._plan, placement)
            self._renew_initial(self._splitter)
        splitter = self._splitter
        parts = split(splitter)
        with self._order:
            links = [self._link(ps) for ps in splitter.ps]
            pending = tuple([_send_one(link, request) for link, request in zip(links, parts.requests, strict=True)])
        return Sent(split, splitter, parts, pending)

    def _renew_initial(self, splitter: Splitter) -> None:
        if self._initial is None:
            return
        for ps, request in zip(splitter.ps, splitter.initialise(self._initial).requests, strict=True):
            if ps in self._links and isinstance(request, messages.Initialise):
                self._links[ps].renew(request)

    def _forget_initial(self) -> None:
        """Once every ps has its model on record."""
        if self._initial is not None and not any(link.keeps_initial for link in self._links.values()):
            self._initial = None

    def _settle(self, sent: Sent) -> tuple[Sent, list[Answer]]:
        """Wait for the answers of all ps by one version of the placement; the latter may be later than what was sent.

        Groups that had absorbed a push by an earlier version say that they have it.
        """
        while True:
            version = sent.splitter.version
            answers: list[Answer] = []
            try:
                for ps, waiting in zip(sent.splitter.ps, sent.pending, strict=True):
                    link = self._links[ps]
                    answers.append(link.settle(waiting, lambda version=version: self._is_latest(version)))  # type: ignore[misc]
                return sent, answers
            except MovedError:
                _release(answers)
                self._await_later(version)
                sent = self._send(sent.split)
            except BaseException:
                _release(answers)
                raise

    def _is_latest(self, version: int) -> bool:
        return self._placement().version <= version

    def _await_later(self, version: int) -> None:
        give_up_s = time.monotonic() + self._settings.unavailable_s
        while self._is_latest(version):
            if time.monotonic() > give_up_s or self._closing.wait(_PLACEMENT_POLL_S):
                raise TransientError(f"a placement later than version {version} did not become known")

    def _link(self, ps: PodName) -> Link:
        if ps not in self._links:
            self._links[ps] = self._new_link(ps)
        return self._links[ps]


def _send_one(link: Link, request: messages.Request) -> Pending:
    return link.initialise(request) if isinstance(request, messages.Initialise) else link.send(request)


def _by_ps(sent: Sent, replies: Sequence[_R]) -> Mapping[PodName, _R]:
    return dict(zip(sent.splitter.ps, replies, strict=True))


def _lives(sent: Sent, answers: Sequence[Answer]) -> Mapping[PodName, Incarnation]:
    return dict(zip(sent.splitter.ps, [answer.incarnation for answer in answers], strict=True))


def _tables_of(sent: Sent) -> list[tuple[messages.TableIds, ...]]:
    return [request.tables for request in sent.parts.requests if isinstance(request, messages.Pull)]


def _release(answers: Sequence[Answer]) -> None:
    for answer in answers:
        answer.release()


def _reply(answer: Answer, kind: type[_R]) -> _R:
    if not isinstance(answer.reply, kind):
        raise ProtocolError(f"a ps answered with {type(answer.reply).__name__}, not {kind.__name__}")
    return answer.reply


def _take_pushed(answer: Answer) -> BatchReply:
    """The reply of a ps that a batch was sent to, or that had it already."""
    if isinstance(answer.reply, messages.NextBatchReply):
        return _take(answer, messages.NextBatchReply)
    return _take(answer, messages.PushReply)


def _take(answer: Answer, kind: type[_R]) -> _R:
    """The reply of an answer without arrays."""
    reply = _reply(answer, kind)
    answer.release()
    return reply
