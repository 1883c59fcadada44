"""A worker's way to all ps: the real rules and splitting, over simulated connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tests.sim.wire import CONNECT_S, Answer, Connection

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Floats, Initialise, Reply, Request
from elasticdl.worker.ps_client import rules
from elasticdl.worker.ps_client.absorbed_batches import Standings
from elasticdl.worker.ps_client.requests import PushOutcome, PushRequest, Standing
from elasticdl.worker.ps_client.splitter import Split, Splitter

if TYPE_CHECKING:
    from tests.sim.worker import WorkerProcess

UNAVAILABLE_S = 600.0
PAUSE_S, PAUSE_S_MAX = 0.02, 0.5
PLACEMENT_POLL_S = 0.005

_R = TypeVar("_R", bound=Reply)


@dataclass(slots=True)
class Pending:
    """A request under way."""

    request: Request
    future: asyncio.Future[Answer] | None


class Link:
    """The way to one ps; follows ``ps_set.link.Link``."""

    def __init__(self, worker: WorkerProcess, ps: PodName) -> None:
        self.ps = ps
        self._worker = worker
        self._connection: Connection | None = None
        self._initial: Initialise | None = None
        self._lock = asyncio.Lock()

    async def send(self, request: Request) -> Pending:
        async with self._lock:
            connection = await self._connected()
            return Pending(request, connection.send(request) if connection else None)

    async def initialise(self, request: Initialise) -> Pending:
        self._initial = request
        return await self.send(request)

    def renew(self, request: Initialise) -> None:
        if self._initial is not None:
            self._initial = request

    async def settle(self, pending: Pending, is_current: Callable[[], bool]) -> Answer:
        loop = self._worker.world.loop
        give_up_s = loop.time() + UNAVAILABLE_S
        pause_s = PAUSE_S
        while True:
            try:
                if pending.future is None:
                    raise ConnectionLostError("it can't be reached")
                reply, incarnation = await pending.future
                waiting = rules.why_not_ready(reply)
                if waiting is None:
                    if rules.has_model_on_record(reply):
                        self._initial = None
                    return reply, incarnation
                if rules.wants_initial_values(waiting) and self._initial is not None:
                    await self.send(self._initial)
            except ConnectionLostError:
                pass
            if not is_current():
                raise rules.MovedError(f"{self.ps} does not answer, and groups have moved")
            if loop.time() > give_up_s:
                raise TransientError(f"{self.ps} was away for {UNAVAILABLE_S} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            pending.future = (await self.send(pending.request)).future

    async def _connected(self) -> Connection | None:
        if self._connection is not None and not self._connection.lost:
            return self._connection
        self._connection = None
        place = self._worker.places.get(self.ps)
        if place is None:
            return None
        world = self._worker.world
        server = world.ps_at(place.address)
        await asyncio.sleep(2 * world.network.latency_s())
        if server is None or not server.life.alive or not server.listening:
            return None
        if server.life.frozen or not world.network.reaches(self._worker.name, self.ps):
            await asyncio.sleep(CONNECT_S)
            return None
        if not rules.is_same_life(server.incarnation, place.incarnation):
            return None
        self._connection = Connection(self._worker, server)
        server.connections.append(self._connection)
        return self._connection


class Links:
    """All ps as one; follows ``PsSet``."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._order = asyncio.Lock()
        self._links: dict[PodName, Link] = {}
        self._standings = Standings()
        self._initial: tuple[Floats, int] | None = None

    async def initialise(self, dense: Floats) -> None:
        self._initial = dense, self._worker.placement.version
        await self._ask(lambda splitter: splitter.initialise(dense))

    async def next_batch(self, task: TaskId, batches: int) -> Standing:
        splitter, answers = await self._ask(lambda splitter: splitter.next_batch(task, batches))
        said = _replies(answers, messages.NextBatchReply), _lives(answers)
        self._standings.note(task, *said, splitter.version)
        return rules.standing_of(*said, splitter.version)

    async def pull(self, ids: Mapping[str, messages.Ids], *, pin: int = 0) -> Mapping[PodName, messages.PullReply]:
        """What each ps answered."""
        _, answers = await self._ask(lambda splitter: splitter.pull(ids, pin=pin, dense=True))
        return _replies(answers, messages.PullReply)

    async def push(self, request: PushRequest) -> PushOutcome:
        def split(splitter: Splitter) -> Split:
            having = self._standings.having(request.task, request.batch, splitter.version, self._life_of)
            return splitter.push(request, having)

        splitter, answers = await self._ask(split)
        said = _pushed(answers), _lives(answers)
        self._standings.note(request.task, *said, splitter.version)
        return rules.outcome_of(*said, splitter.version)

    def _life_of(self, ps: PodName) -> Incarnation | None:
        place = self._worker.places.get(ps)
        return place.incarnation if place else None

    async def _ask(self, split: Callable[[Splitter], Split]) -> tuple[Splitter, Mapping[PodName, Answer]]:
        job = self._worker.world.job
        while True:
            splitter = Splitter(job.signature, job.plan.fingerprint, self._worker.placement)
            self._renew_initial(splitter)
            requests = split(splitter).requests
            async with self._order:
                pending = [
                    await self._send(self._link(ps), request) for ps, request in zip(splitter.ps, requests, strict=True)
                ]
            try:
                return splitter, await self._settle(splitter, pending)
            except rules.MovedError:
                while self._is_latest(splitter):
                    await asyncio.sleep(PLACEMENT_POLL_S)

    def _renew_initial(self, splitter: Splitter) -> None:
        if self._initial is None or self._initial[1] == splitter.version:
            return
        self._initial = self._initial[0], splitter.version
        for ps, request in zip(splitter.ps, splitter.initialise(self._initial[0]).requests, strict=True):
            if ps in self._links and isinstance(request, Initialise):
                self._links[ps].renew(request)

    @staticmethod
    async def _send(link: Link, request: Request) -> Pending:
        return await (link.initialise(request) if isinstance(request, Initialise) else link.send(request))

    async def _settle(self, splitter: Splitter, pending: Sequence[Pending]) -> Mapping[PodName, Answer]:
        return {
            ps: await self._link(ps).settle(waiting, lambda: self._is_latest(splitter))
            for ps, waiting in zip(splitter.ps, pending, strict=True)
        }

    def _is_latest(self, splitter: Splitter) -> bool:
        return self._worker.placement.version <= splitter.version

    def _link(self, ps: PodName) -> Link:
        return self._links.setdefault(ps, Link(self._worker, ps))


def _replies(answers: Mapping[PodName, Answer], kind: type[_R]) -> dict[PodName, _R]:
    replies: dict[PodName, _R] = {}
    for ps, (reply, _) in answers.items():
        if not isinstance(reply, kind):
            raise ProtocolError(f"{ps} answered with {type(reply).__name__}")
        replies[ps] = reply
    return replies


def _pushed(answers: Mapping[PodName, Answer]) -> dict[PodName, rules.BatchReply]:
    asked = {ps: answer for ps, answer in answers.items() if isinstance(answer[0], messages.NextBatchReply)}
    pushed = {ps: answer for ps, answer in answers.items() if ps not in asked}
    return {**_replies(asked, messages.NextBatchReply), **_replies(pushed, messages.PushReply)}


def _lives(answers: Mapping[PodName, Answer]) -> dict[PodName, Incarnation]:
    return {ps: incarnation for ps, (_, incarnation) in answers.items()}
