"""Calls to all ps as if they were one: split, send to every ps, wait, follow moved groups; and the retries of requests.

Pure procedures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Floats, Ids, PullReply
from elasticdl.worker.ps_client import rules
from elasticdl.worker.ps_client.absorbed_batches import AbsorbedBatches
from elasticdl.worker.ps_client.connection import PsClientSettings, PsConnection
from elasticdl.worker.ps_client.requests import (
    NO_INSTANCES,
    EpochMetrics,
    Instances,
    PushOutcome,
    PushRequest,
    TaskProgress,
)
from elasticdl.worker.ps_client.rules import BatchReply, MovedError, PinLostError, PullDelayedError
from elasticdl.worker.ps_client.sent_requests import Order, SentPush, SentRequest, Settled, checked, stages_of
from elasticdl.worker.ps_client.splitter import Split, Splitter
from elasticdl.worker.ps_client.steps import Answer, Pause, PsDirectory, Receive

_R = TypeVar("_R", bound=messages.Reply)
_PLACEMENT_POLL_S = 0.005
"""Seconds between two looks for the later placement that a ps mentioned."""


class PsCalls:
    """The calls of a worker.

    Training uses one thread (or one coroutine), so every ps sees pushes and pulls in the same order. Another one may
    ask for progress or pull a pinned model meanwhile.

    Args:
        clock: monotonic time.
    """

    def __init__(
        self, directory: PsDirectory, *, plan: str, signature: ModelSignature, clock: Clock, settings: PsClientSettings
    ) -> None:
        self.signature = signature
        self._directory = directory
        self._plan = plan
        self._clock = clock
        self._settings = settings
        self._splitter = Splitter(signature, plan, directory.placement())
        self._absorbed = AbsorbedBatches()
        self._initial: Floats | None = None
        """Kept while a ps may need its part again: a later placement splits them differently."""
        self._connections: dict[PodName, PsConnection] = {}

    def initialise(self, dense: Floats) -> Procedure[bool]:
        """Offer initial values, float32 flat over all variables; each ps takes the first ones that it is offered.

        Returns:
            Whether every ps took ours.

        Raises:
            UserError: the job trains another model, or the ps does not know its optimizer.
        """
        size = sum(part.size for part in self._splitter.parts)
        if dense.shape != (size,):
            raise ValueError(f"{dense.shape} initial values for {size} elements")
        self._initial = dense.copy()
        settled = yield from self._call(lambda splitter: splitter.initialise(dense))
        replies = [_take(answer, messages.InitialiseReply) for answer in settled.answers]
        return all(reply.first for reply in replies)

    def next_batch(self, task: TaskId, batches: int) -> Procedure[TaskProgress]:
        """Ask the ledgers how far a task of so many batches is."""
        settled = yield from self._call(lambda splitter: splitter.next_batch(task, batches))
        replies = settled.by_ps([_take(answer, messages.NextBatchReply) for answer in settled.answers])
        version = settled.sent.splitter.version
        self._absorbed.record(task, replies, settled.incarnations, version)
        return rules.progress_of(replies, settled.incarnations, version)

    def read_metrics(self, epoch: int) -> Procedure[EpochMetrics]:
        """Read the metrics of an epoch; the ps forget those of earlier epochs."""
        settled = yield from self._call(lambda splitter: splitter.read_metrics(epoch))
        try:
            reply = settled.replies(messages.MetricsReply)[settled.sent.splitter.gate]
            return EpochMetrics(
                complete=reply.complete, batches=reply.batches, records=reply.records, states=reply.states.tobytes()
            )
        finally:
            settled.release()

    def send_pull(
        self,
        ids: Mapping[str, Ids],
        *,
        pin: int = 0,
        dense: bool = True,
        batch: tuple[int, int] | None = None,
        averages: bool = False,
    ) -> Procedure[SentRequest]:
        """Ask for rows and dense variables.

        Args:
            ids: by table name; unique int64[n].
            pin: the evaluation whose pinned model is read; 0: the current one.
            averages: whether the averages of dense variables are wanted, if the optimizer keeps averages.
        """
        order = Order.GATE_FIRST if batch and self._settings.has_gate else Order.TOGETHER
        return self._send(
            lambda splitter: splitter.pull(ids, pin=pin, dense=dense, batch=batch, averages=averages), order
        )

    def receive_pull(self, sent: SentRequest) -> Procedure[Settled]:
        """Wait for the answers, all of which are ``PullReply``.

        Raises:
            PinLostError: the pinned model is not available on every ps.
            PullDelayedError: the batch has to wait for other workers.
            TransientError: a ps was unavailable for too long.
            UserError, ProtocolError: a ps refused.
        """
        settled = yield from self._settle(sent)
        try:
            settled.replies(PullReply)
        except BaseException:
            settled.release()
            raise
        return settled

    def pull(
        self,
        ids: Mapping[str, Ids],
        *,
        pin: int = 0,
        dense: bool = True,
        batch: tuple[int, int] | None = None,
        only: Instances = NO_INSTANCES,
        averages: bool = False,
    ) -> Procedure[Settled]:
        """``send_pull`` and ``receive_pull``.

        Args:
            ids: see ``send_pull``, like the next three.
            only: the instance of each ps that has to answer; empty: any.

        Raises:
            PinLostError: also if another instance has answered.
        """
        sent = yield from self.send_pull(ids, pin=pin, dense=dense, batch=batch, averages=averages)
        settled = yield from self.receive_pull(sent)
        if only and dict(only) != settled.incarnations:
            settled.release()
            raise PinLostError(f"{dict(only)} have the model, and {settled.incarnations} answered")
        return settled

    def send_push(self, request: PushRequest, *, is_followed: bool = False) -> Procedure[SentPush]:
        """Send a batch; a ps that has it already is only asked for its progress.

        Args:
            is_followed: a pull follows at once.
        """
        refused = self._not_finite(request)
        if refused:
            return SentPush(request, None, refused)
        order = Order.GATE_LAST if self._settings.has_gate else Order.TOGETHER
        sent = yield from self._send(partial(self._split_push, request), order, is_followed=is_followed)
        return SentPush(request, sent)

    def receive_push(self, push: SentPush) -> Procedure[tuple[PushOutcome, bool]]:
        """Wait until every group has answered; errors as ``receive_pull``.

        Returns:
            The outcome, and whether every ps got the push exactly once.
        """
        request = push.request
        if push.sent is None:
            outcome = PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=push.refused)
            return outcome, True
        settled = yield from self._settle(push.sent)
        replies = settled.by_ps([_take_pushed(answer) for answer in settled.answers])
        self._forget_initial()
        incarnations, version = settled.incarnations, settled.sent.splitter.version
        self._absorbed.record(request.task, replies, incarnations, version)
        return rules.outcome_of(replies, incarnations, version), not settled.repeated

    def push(self, request: PushRequest) -> Procedure[PushOutcome]:
        """``send_push`` and ``receive_push``."""
        sent = yield from self.send_push(request)
        outcome, _ = yield from self.receive_push(sent)
        return outcome

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> Procedure[tuple[PushOutcome, Settled | None, float]]:
        """Push a batch and pull for the next one in one round trip.

        The pull follows the push on every connection, so each ps answers it with weights that contain the batch. A gate
        among several ps has to get the push last and the pull first, so that the pull needs a round trip of its own.

        Returns:
            The outcome of the push, and the answers to the pull: None if they may lack the batch, or were not asked
            for, or if the pull has to wait for other workers; and the seconds that the pull took longer than the push.
        """
        is_followed = not self._settings.has_gate or len(self._splitter.ps) == 1
        push = yield from self.send_push(request, is_followed=is_followed)
        if push.sent is None or len(push.sent.stages) > 1:
            outcome, _ = yield from self.receive_push(push)
            return outcome, None, 0.0
        pull = yield from self.send_pull(ids, batch=batch)
        outcome, once = yield from self.receive_push(push)
        if not rules.contains_push(request, outcome, sent_once=once):
            yield from self._discard(pull)
            return outcome, None, 0.0
        pushed_s = self._clock.monotonic()
        settled: Settled | None = None
        with contextlib.suppress(PullDelayedError):
            settled = yield from self.receive_pull(pull)
        return outcome, settled, self._clock.monotonic() - pushed_s

    def _discard(self, sent: SentRequest) -> Procedure[None]:
        """Receive answers that are not needed: a ps that can't send one for long would close the connection."""
        for pending in sent.pending:
            if pending is not None and pending.handle is not None:
                with contextlib.suppress(ConnectionLostError, ProtocolError):  # The next request shows it.
                    answer: Answer = yield Receive(pending.handle)
                    answer.release()

    # --- all ps as one --------------------------------------------------------------------------------------------

    def _call(self, split: Callable[[Splitter], Split]) -> Procedure[Settled]:
        sent = yield from self._send(split)
        return (yield from self._settle(sent))

    def _send(
        self, split: Callable[[Splitter], Split], order: Order = Order.TOGETHER, *, is_followed: bool = False
    ) -> Procedure[SentRequest]:
        placement = self._directory.placement()
        if placement.version > self._splitter.version:
            self._splitter = Splitter(self.signature, self._plan, placement)
            self._replace_initial(self._splitter)
        splitter = self._splitter
        stages = stages_of(splitter, order)
        sent = SentRequest(split, splitter, split(splitter), order, stages, [None] * len(splitter.ps))
        yield from self._send_stage(sent, sent.stages[0], is_followed=is_followed)
        return sent

    def _send_stage(
        self, sent: SentRequest, stage: Sequence[int], *, is_followed: bool = False, updates_ahead: int = 0
    ) -> Procedure[None]:
        for number in stage:
            connection, request = self._connection(sent.splitter.ps[number]), sent.parts.requests[number]
            if updates_ahead and isinstance(request, messages.Pull):
                request = replace(request, updates_ahead=updates_ahead)
            if isinstance(request, messages.Initialise):
                sent.pending[number] = yield from connection.initialise(request)
            else:
                sent.pending[number] = yield from connection.send(request, is_followed=is_followed)

    def _settle(self, sent: SentRequest) -> Procedure[Settled]:
        """Wait for the answers of all ps by one version of the placement, which may be later than that of ``sent``.

        Groups that absorbed a push by an earlier version answer that they have it.
        """
        repeated = False
        while True:
            version = sent.splitter.version
            answers: dict[int, Answer] = {}
            try:
                for position, stage in enumerate(sent.stages):
                    if position:
                        yield from self._send_stage(sent, stage, updates_ahead=_updates_ahead(answers.values()))
                    for number in stage:
                        pending = sent.pending[number]
                        assert pending is not None
                        connection = self._connections[sent.splitter.ps[number]]
                        answers[number] = yield from connection.settle(pending, version, self._is_latest)
                        repeated = repeated or pending.repeated
                return Settled(sent, [answers[number] for number in sorted(answers)], repeated)
            except MovedError:
                _release(answers.values())
                repeated = True
                yield from self._await_later(version)
                sent = yield from self._send(sent.split, sent.order)
            except BaseException:
                _release(answers.values())
                raise

    def _await_later(self, version: int) -> Procedure[None]:
        give_up_s = self._clock.monotonic() + self._settings.unavailable_s
        while self._is_latest(version):
            if self._clock.monotonic() > give_up_s:
                raise TransientError(f"no placement later than version {version} became known")
            yield Pause(_PLACEMENT_POLL_S, version)

    def _is_latest(self, version: int) -> bool:
        return self._directory.placement().version <= version

    def _split_push(self, request: PushRequest, splitter: Splitter) -> Split:
        having = self._absorbed.having(request.task, request.batch, splitter.version, self._incarnation_of)
        if self._settings.has_gate:
            having -= {splitter.ps[splitter.gate]}  # It has to know that the batch was pushed.
        return splitter.push(request, having)

    def _incarnation_of(self, ps: PodName) -> Incarnation | None:
        registered = self._directory.resolve().get(ps)
        return registered.incarnation if registered else None

    def _not_finite(self, request: PushRequest) -> str:
        """Where a value is NaN or infinite. A single ps finds that itself at less cost; several must agree on it."""
        if len(self._splitter.ps) == 1:
            return ""
        suspects: list[tuple[str, Floats]] = [("layer state", request.statistics_update)]
        if request.dense_gradient is not None:
            suspects.append(("dense gradient", request.dense_gradient))
        suspects += [(f"gradients of table {name!r}", rows) for name, (_, rows) in request.rows.items()]
        return "; ".join(f"{name} is NaN or infinite" for name, values in suspects if not np.isfinite(values).all())

    def _replace_initial(self, splitter: Splitter) -> None:
        if self._initial is None:
            return
        for ps, request in zip(splitter.ps, splitter.initialise(self._initial).requests, strict=True):
            if ps in self._connections and isinstance(request, messages.Initialise):
                self._connections[ps].replace_initial(request)

    def _forget_initial(self) -> None:
        """Once every ps has its model on record."""
        if self._initial is not None and not any(one.keeps_initial for one in self._connections.values()):
            self._initial = None

    def _connection(self, ps: PodName) -> PsConnection:
        if ps not in self._connections:
            self._connections[ps] = PsConnection(
                ps, directory=self._directory, clock=self._clock, settings=self._settings
            )
        return self._connections[ps]


def _release(answers: Iterable[Answer]) -> None:
    for answer in answers:
        answer.release()


def _updates_ahead(answers: Iterable[Answer]) -> int:
    """What the gate, which answers a pull first, predicts its weights for: the other ps predict for the same moment."""
    return max((answer.reply.updates_ahead for answer in answers if isinstance(answer.reply, PullReply)), default=0)


def _take_pushed(answer: Answer) -> BatchReply:
    """The reply of a ps that got the batch, or that had it already and was asked for its progress."""
    if isinstance(answer.reply, messages.NextBatchReply):
        return _take(answer, messages.NextBatchReply)
    return _take(answer, messages.PushReply)


def _take(answer: Answer, kind: type[_R]) -> _R:
    """The reply of an answer without arrays."""
    reply = checked(answer, kind)
    answer.release()
    return reply
