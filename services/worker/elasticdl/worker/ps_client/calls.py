"""Calls to all ps as if they were one: split, send to every ps, wait, follow moved groups; and the retries of requests.

Pure procedures.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Floats, Ids, PullReply
from elasticdl.worker.ps_client.connection import (
    PLACEMENT_POLL_S,
    Answer,
    MovedError,
    Pause,
    PendingRequest,
    PsClientSettings,
    PsConnection,
    PsDirectory,
    Receive,
)
from elasticdl.worker.ps_client.requests import (
    NO_INSTANCES,
    BatchReply,
    EpochMetrics,
    Instances,
    PinLostError,
    PullDelayedError,
    PushOutcome,
    PushRequest,
    TaskProgress,
)
from elasticdl.worker.ps_client.splitter import Split, Splitter

_T = TypeVar("_T")
TASKS_MAX = 16
"""Tasks whose last answers are remembered. A worker leases fewer at a time."""


class Order(Enum):
    """Which ps gets a request first. The gate bounds the staleness, see docs/adr/0010-asynchronous-training.md."""

    TOGETHER = "together"
    GATE_FIRST = "gate first"
    GATE_LAST = "gate last"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that was sent to every ps of the first stage.

    Attributes:
        split: splits the request by a placement; called again if groups move.
        stages: positions of the ps; those of the second stage get the request once those of the first have answered.
        pending: by position of the ps.
    """

    split: Callable[[Splitter], Split]
    splitter: Splitter
    parts: Split
    order: Order
    stages: tuple[Sequence[int], ...]
    pending: dict[int, PendingRequest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settled:
    """The answers of all ps by one version of the placement.

    Attributes:
        sent: what they answered; its placement may be later than that of the first try.
        answers: one per ps, in the splitter's order.
    """

    sent: SentRequest
    answers: Sequence[Answer]
    repeated: bool

    @property
    def replies(self) -> Sequence[Any]:
        """The replies, each of the kind that answers its request. Arrays in them need the buffers."""
        return [answer.reply for answer in self.answers]

    @property
    def incarnations(self) -> Mapping[PodName, Incarnation]:
        """The incarnation of each ps that answered."""
        return self.by_ps([answer.incarnation for answer in self.answers])

    def by_ps(self, values: Sequence[_T]) -> Mapping[PodName, _T]:
        """Values in the splitter's order, by name of the ps."""
        return dict(zip(self.sent.splitter.ps, values, strict=True))

    def iterations(self) -> Mapping[PodName, int]:
        """The answers of a pull: by ps the optimizer updates up to its state."""
        return self.by_ps([reply.iteration for reply in self.replies])

    def release(self) -> None:
        """Return all receive buffers."""
        _release(self.answers)


class PsCalls:
    """The calls of a worker.

    Training uses one thread (or one coroutine), so every ps sees pushes and pulls in the same order. Another one may
    ask for progress or pull a pinned model meanwhile.
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
        self._absorbed = AbsorbedBatches(directory)
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
        settled.release()
        return all(reply.first for reply in settled.replies)

    def next_batch(self, task: TaskId, batches: int) -> Procedure[TaskProgress]:
        """Ask the ledgers how far a task of so many batches is."""
        settled = yield from self._call(lambda splitter: splitter.next_batch(task, batches))
        settled.release()
        replies = self._absorbed.record(task, settled)
        return TaskProgress.of(replies, settled.incarnations, settled.sent.splitter.version)

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> Procedure[EpochMetrics]:
        """Read the metrics of an epoch; the ps forget those of earlier epochs. They may lack ``skipped`` tasks."""
        settled = yield from self._call(lambda splitter: splitter.read_metrics(epoch, skipped))
        reply: messages.MetricsReply = settled.replies[settled.sent.splitter.gate]
        metrics = EpochMetrics(
            complete=reply.complete, batches=reply.batches, records=reply.records, states=reply.states.tobytes()
        )
        settled.release()
        return metrics

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
        """Ask for rows and dense variables; the answers are ``PullReply``.

        Args:
            ids: by table name; unique int64[n].
            pin: the evaluation whose pinned model is read; 0: the current one.
            only: the instance of each ps that has to answer; empty: any.
            averages: whether the averages of dense variables are wanted, if the optimizer keeps averages.

        Raises:
            PinLostError: the pinned model is not available on every ps, or another instance has answered.
            PullDelayedError: the batch has to wait for other workers.
        """
        settled = yield from self._call(
            lambda splitter: splitter.pull(ids, pin=pin, dense=dense, batch=batch, averages=averages),
            self._first_is_gate if batch else Order.TOGETHER,
        )
        if only and dict(only) != settled.incarnations:
            settled.release()
            raise PinLostError(f"{dict(only)} have the model, and {settled.incarnations} answered")
        return settled

    def push(self, request: PushRequest) -> Procedure[PushOutcome]:
        """``push_and_pull`` without a pull."""
        outcome, _, _ = yield from self.push_and_pull(request)
        return outcome

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids] | None = None, batch: tuple[int, int] | None = None
    ) -> Procedure[tuple[PushOutcome, Settled | None, float]]:
        """Push a batch and pull for the next one in one round trip; errors as ``pull``.

        A ps that has the batch already is only asked for its progress. The pull follows the push on every connection,
        so each ps answers it with weights that contain the batch. A gate among several ps has to get the push last and
        the pull first, so that the pull needs a round trip of its own.

        Args:
            ids: of the pull; None: push only.

        Returns:
            The outcome of the push, and the answers to the pull: None if they may lack the batch, or were not asked
            for, or if the pull has to wait for other workers; and the seconds that the pull took longer than the push.
        """
        not_finite = self._not_finite(request)
        if not_finite:
            return PushOutcome(next_batch=request.batch, credits={}, step=0, not_finite=not_finite), None, 0.0
        push = yield from self._begin(
            lambda splitter: splitter.push(request, self._having(request, splitter)),
            Order.GATE_LAST if self._settings.has_gate else Order.TOGETHER,
            is_followed=ids is not None and (not self._settings.has_gate or len(self._splitter.ps) == 1),
        )
        if ids is None or len(push.stages) > 1:
            outcome, _ = yield from self._settle_push(request, push)
            return outcome, None, 0.0
        pull = yield from self._begin(lambda splitter: splitter.pull(ids, batch=batch), self._first_is_gate)
        outcome, sent_once = yield from self._settle_push(request, push)
        if not outcome.is_certainly_pulled(request, sent_once=sent_once):
            yield from self._discard(pull)
            return outcome, None, 0.0
        pushed_s = self._clock.monotonic()
        settled: Settled | None = None
        with contextlib.suppress(PullDelayedError):
            settled = yield from self._settle(pull)
        return outcome, settled, self._clock.monotonic() - pushed_s

    def _settle_push(self, request: PushRequest, sent: SentRequest) -> Procedure[tuple[PushOutcome, bool]]:
        """Wait until every group has answered: the outcome, and whether every ps got the push exactly once."""
        settled = yield from self._settle(sent)
        settled.release()
        self._forget_initial()
        replies = self._absorbed.record(request.task, settled)
        outcome = PushOutcome.of(replies, settled.incarnations, settled.sent.splitter.version)
        return outcome, not settled.repeated

    def _discard(self, sent: SentRequest) -> Procedure[None]:
        """Receive answers that are not needed: a ps that can't send one for long would close the connection."""
        for pending in sent.pending.values():
            if pending.handle is not None:
                with contextlib.suppress(ConnectionLostError, ProtocolError):  # The next request shows it.
                    answer: Answer = yield Receive(pending.handle)
                    answer.release()

    # --- all ps as one --------------------------------------------------------------------------------------------

    def _call(self, split: Callable[[Splitter], Split], order: Order = Order.TOGETHER) -> Procedure[Settled]:
        sent = yield from self._begin(split, order)
        return (yield from self._settle(sent))

    def _begin(
        self, split: Callable[[Splitter], Split], order: Order = Order.TOGETHER, *, is_followed: bool = False
    ) -> Procedure[SentRequest]:
        """Split a request by the latest placement, and send it to every ps of the first stage."""
        placement = self._directory.placement()
        if placement.version > self._splitter.version:
            self._splitter = Splitter(self.signature, self._plan, placement)
            self._replace_initial(self._splitter)
        splitter = self._splitter
        sent = SentRequest(split, splitter, split(splitter), order, _stages_of(splitter, order))
        for number in sent.stages[0]:
            connection = self._connection(splitter.ps[number])
            sent.pending[number] = yield from connection.send(sent.parts.requests[number], is_followed=is_followed)
        return sent

    def _settle(self, sent: SentRequest) -> Procedure[Settled]:
        """Wait for the answers of all ps by one version of the placement, which may be later than that of ``sent``.

        Groups that absorbed a push by an earlier version answer that they have it.
        """
        repeated = False
        while True:
            version = sent.splitter.version
            answers: dict[int, Answer] = {}
            try:
                for stage in sent.stages:
                    for number in stage:
                        if number not in sent.pending:
                            request = _predicting_alike(sent.parts.requests[number], answers.values())
                            sent.pending[number] = yield from self._connection(sent.splitter.ps[number]).send(request)
                    for number in stage:
                        pending = sent.pending[number]
                        connection = self._connections[sent.splitter.ps[number]]
                        answers[number] = yield from connection.settle(pending, version, self._is_latest)
                        repeated = repeated or pending.repeated
                return Settled(sent, [answers[number] for number in sorted(answers)], repeated)
            except MovedError:
                _release(answers.values())
                repeated = True
                yield from self._await_later(version)
                sent = yield from self._begin(sent.split, sent.order)
            except BaseException:
                _release(answers.values())
                raise

    def _await_later(self, version: int) -> Procedure[None]:
        give_up_s = self._clock.monotonic() + self._settings.unavailable_s
        while self._is_latest(version):
            if self._clock.monotonic() > give_up_s:
                raise TransientError(f"no placement later than version {version} became known")
            yield Pause(PLACEMENT_POLL_S, version)

    def _is_latest(self, version: int) -> bool:
        return self._directory.placement().version <= version

    @property
    def _first_is_gate(self) -> Order:
        return Order.GATE_FIRST if self._settings.has_gate else Order.TOGETHER

    def _having(self, request: PushRequest, splitter: Splitter) -> frozenset[PodName]:
        """The ps that need not get a batch."""
        having = self._absorbed.having(request.task, request.batch, splitter.version)
        if self._settings.has_gate:
            having -= {splitter.ps[splitter.gate]}  # It has to know that the batch was pushed.
        return having

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


@dataclass(frozen=True, slots=True)
class _LastAnswers:
    """The last answers of all ps about a task.

    Attributes:
        version: version of the placement by which they answered; by another one they may hold other groups.
        incarnations: who answered; a restarted ps may have absorbed less.
    """

    version: int
    incarnations: Mapping[PodName, Incarnation]
    next_batches: Mapping[PodName, int]


class AbsorbedBatches:
    """What each ps last answered about the progress of a task, so that no batch is sent to it again.

    When one ps is restored from a snapshot, the task is repeated for that ps; the others are only asked for their
    progress. If one of them has absorbed less by now, its answer says so, and the worker repeats more.
    """

    def __init__(self, directory: PsDirectory) -> None:
        self._directory = directory
        self._tasks: OrderedDict[TaskId, _LastAnswers] = OrderedDict()

    def record(self, task: TaskId, settled: Settled) -> Mapping[PodName, BatchReply]:
        """Remember what all ps answered about a task; returns their replies."""
        replies: Mapping[PodName, BatchReply] = settled.by_ps(settled.replies)
        next_batches = {ps: reply.next_batch for ps, reply in replies.items()}
        self._tasks[task] = _LastAnswers(settled.sent.splitter.version, settled.incarnations, next_batches)
        self._tasks.move_to_end(task)
        if len(self._tasks) > TASKS_MAX:
            self._tasks.popitem(last=False)
        return replies

    def having(self, task: TaskId, batch: int, version: int) -> frozenset[PodName]:
        """The ps whose running incarnation has answered, by this version of the placement, that it has a batch."""
        said = self._tasks.get(task)
        if said is None or said.version != version:
            return frozenset()
        running = self._directory.resolve()
        return frozenset(
            ps
            for ps, next_batch in said.next_batches.items()
            if next_batch > batch and ps in running and running[ps].incarnation == said.incarnations[ps]
        )


def _stages_of(splitter: Splitter, order: Order) -> tuple[Sequence[int], ...]:
    everywhere = range(len(splitter.ps))
    if order is Order.TOGETHER or len(everywhere) == 1:
        return (everywhere,)
    stages = ((splitter.gate,), tuple(number for number in everywhere if number != splitter.gate))
    return stages if order is Order.GATE_FIRST else stages[::-1]


def _predicting_alike(request: messages.Request, answers: Iterable[Answer]) -> messages.Request:
    """A request whose ps predicts its weights for the same moment as the gate, which answers a pull first."""
    updates_ahead = max((one.reply.updates_ahead for one in answers if isinstance(one.reply, PullReply)), default=0)
    if updates_ahead and isinstance(request, messages.Pull):
        return replace(request, updates_ahead=updates_ahead)
    return request


def _release(answers: Iterable[Answer]) -> None:
    for answer in answers:
        answer.release()
