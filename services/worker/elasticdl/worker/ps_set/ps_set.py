"""All ps as one: requests are split, sent to every ps, and the answers put together again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model import ModelSignature
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.placement import RowSplit
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.messages import NO_FLOATS, Floats, Ids
from elasticdl.worker.ps_set.gathering import Gathering
from elasticdl.worker.ps_set.link import Answer, Link, Pending, PsSetSettings, Resolve
from elasticdl.worker.ps_set.requests import Pulled, PushOutcome, PushRequest, Standing
from elasticdl.worker.ps_set.rules import outcome_of, standing_of
from elasticdl.worker.ps_set.splitting import Splitter

_R = TypeVar("_R", bound=messages.Reply)

PULL_ROWS_MAX = 1 << 16
"""Rows of one request of ``pull_rows``."""


@dataclass(frozen=True, slots=True)
class PullTicket:
    """A pull under way; pass it to ``receive_pull`` once."""

    pending: tuple[Pending, ...]
    splits: Mapping[str, RowSplit]
    dense: bool


@dataclass(frozen=True, slots=True)
class PushTicket:
    """A push under way; pass it to ``receive_push`` once.

    ``refused``: it was not sent, because NaN or infinity is in it; says where.
    """

    request: PushRequest
    pending: tuple[Pending, ...]
    refused: str = ""


class PsSet:
    """The parameter servers of a job; see the package for threads and arrays.

    Args:
        ps: names in the order of the placement.
        resolve: where each of them is now.
        token: the job's secret.
        peer: who we are, for the logs of the ps.
        plan: the plan's fingerprint.
        signature: the model.
        settings: patience.
    """

    def __init__(
        self,
        *,
        ps: Sequence[PodName],
        resolve: Resolve,
        token: str,
        peer: str,
        plan: str,
        signature: ModelSignature,
        settings: PsSetSettings | None = None,
    ) -> None:
        settings = settings or PsSetSettings()
        self.signature = signature
        self._plan = plan
        self._splitter = Splitter(signature, plan, len(ps))
        self._parts = self._splitter.parts
        self._dense_size = sum(part.size for part in self._parts)
        self._numbers = {table.name: number for number, table in enumerate(signature.tables)}
        self._pool = BufferPool()
        self._order = threading.Lock()
        """Held for one fan-out, so that all ps see requests in the same order."""
        self._links = tuple(
            Link(name, resolve=resolve, token=token, peer=peer, pool=self._pool, settings=settings) for name in ps
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
        requests = self._splitter.initialise(dense)
        with self._order:
            pending = [link.initialise(request) for link, request in zip(self._links, requests, strict=True)]
        answers = self._settle(pending)
        taken = [_take(answer, messages.Initialised).first for answer in answers]
        return all(taken)

    def next_batch(self, task: TaskId, batches: int) -> Standing:
        """Where a task of so many batches stands; a worker begins it at the answer's ``next_batch``."""
        request = messages.NextBatch(plan=self._plan, task=task, batches=batches)
        answers = self._ask([request] * len(self._links))
        return standing_of(self._by_ps([_take(answer, messages.Standing) for answer in answers]), self._lives(answers))

    def send_pull(self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True) -> PullTicket:
        """Ask for rows and dense variables.

        Args:
            ids: by table name; unique int64[n].
            pin: evaluation whose pinned state is read; 0: the present state.
            dense: whether dense variables are wanted.
        """
        splits = self._splitter.rows(ids)
        requests = self._splitter.pull(splits, pin=pin, dense=dense)
        return PullTicket(self._send(requests), splits, dense)

    def receive_pull(self, ticket: PullTicket) -> Pulled:
        """Wait for a pull.

        Raises:
            PinLostError: the pin is not open on every ps.
            TransientError: a ps stayed away too long.
            UserError, ProtocolError: a ps refused.
        """
        answers = self._settle(ticket.pending)
        try:
            replies = [_reply(answer, messages.Pulled) for answer in answers]
            gathering = Gathering(self._pool)
            dense = gathering.dense(self._parts, replies) if ticket.dense else NO_FLOATS
            rows = gathering.rows(ticket.splits, self._tables_of(ticket), replies)
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
        """Send a batch to every ps."""
        refused = self._not_finite(request)
        if refused:
            return PushTicket(request, (), refused)
        return PushTicket(request, self._send(self._splitter.push(request)))

    def receive_push(self, ticket: PushTicket) -> PushOutcome:
        """Wait until every group has answered; errors as ``receive_pull``."""
        request = ticket.request
        if ticket.refused:
            return PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=ticket.refused)
        answers = self._settle(ticket.pending)
        replies = [_take(answer, messages.Pushed) for answer in answers]
        return outcome_of(self._by_ps(replies), self._lives(answers))

    def push(self, request: PushRequest) -> PushOutcome:
        """``send_push`` and ``receive_push``."""
        return self.receive_push(self.send_push(request))

    def close(self) -> None:
        """Hang up; calls that wait fail with TransientError."""
        for link in self._links:
            link.close()

    def _by_ps(self, replies: Sequence[_R]) -> Mapping[PodName, _R]:
        return {link.ps: reply for link, reply in zip(self._links, replies, strict=True)}

    def _lives(self, answers: Sequence[Answer]) -> Mapping[PodName, Incarnation]:
        return {link.ps: answer.incarnation for link, answer in zip(self._links, answers, strict=True)}

    def _not_finite(self, request: PushRequest) -> str:
        """Where NaN or infinity is. Several ps must agree on it; one finds it itself, at less cost."""
        if len(self._links) == 1:
            return ""
        suspects: list[tuple[str, Floats]] = [("statistics delta", request.statistics_delta)]
        if request.dense_gradient is not None:
            suspects.append(("dense gradient", request.dense_gradient))
        suspects += [(f"gradients of table {name!r}", rows) for name, (_, rows) in request.rows.items()]
        return "; ".join(name for name, values in suspects if not np.isfinite(values).all())

    def _tables_of(self, ticket: PullTicket) -> list[tuple[messages.TableIds, ...]]:
        return [one.request.tables for one in ticket.pending if isinstance(one.request, messages.Pull)]

    def _ask(self, requests: Sequence[messages.Request]) -> list[Answer]:
        return self._settle(self._send(requests))

    def _send(self, requests: Sequence[messages.Request]) -> tuple[Pending, ...]:
        with self._order:
            return tuple([link.send(request) for link, request in zip(self._links, requests, strict=True)])

    def _settle(self, pending: Sequence[Pending]) -> list[Answer]:
        answers: list[Answer] = []
        try:
            for link, waiting in zip(self._links, pending, strict=True):
                answers.append(link.settle(waiting))
        except BaseException:
            _release(answers)
            raise
        return answers


def _release(answers: Sequence[Answer]) -> None:
    for answer in answers:
        answer.release()


def _reply(answer: Answer, kind: type[_R]) -> _R:
    if not isinstance(answer.reply, kind):
        raise ProtocolError(f"a ps answered with {type(answer.reply).__name__}, not {kind.__name__}")
    return answer.reply


def _take(answer: Answer, kind: type[_R]) -> _R:
    """The reply of an answer without arrays."""
    reply = _reply(answer, kind)
    answer.release()
    return reply
