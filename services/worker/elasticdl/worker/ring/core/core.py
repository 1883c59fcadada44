"""The core of one member of a ring.

A generation is formed by the master. Its members connect, bring all states to the newest position, and *open* it. While
it is open, the leader collects offers, and has all members reduce a round when it is complete; a member commits when
its own part of the ring is done. The loss of any connection ends the generation for the member that notices it: it
closes all its own connections, so that its neighbours notice, too, and reports that it is ready for the next
generation. What it has computed and not committed stays with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import assert_never

from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.core_runner import TimerFired
from elasticdl.worker.ring.core import commands, events
from elasticdl.worker.ring.core.contributions import Contributions
from elasticdl.worker.ring.core.messages import (
    Go,
    Hello,
    Kind,
    Message,
    Offer,
    Opened,
    Result,
    State,
    Want,
)
from elasticdl.worker.ring.core.positions import Lack, Position, donor, lack
from elasticdl.worker.ring.ports import LEADER, Generation


class Phase(Enum):
    """Where a member is in the course of a generation."""

    IDLE = "idle"
    """It waits for the master to form a generation with it."""
    FORMING = "forming"
    """Members connect and compare their states."""
    OPEN = "open"
    """Rounds are reduced and committed."""
    LEFT = "left"
    """It has left for good."""


class RingCore:
    """Decides everything that one member does. Not thread-safe."""

    def __init__(self, worker: PodName, incarnation: Incarnation) -> None:
        self._worker, self._incarnation = worker, incarnation
        self._commands: list[commands.RingCommand] = []
        self.phase = Phase.IDLE
        self.generation: Generation | None = None
        """The present one; after a break, the one that this member has given up."""
        self.position = Position()
        self._rank = -1
        self._newest = 0
        """Number of the newest generation that the master has published."""
        self._following: Generation | None = None
        """A generation with more members, to be entered after the round that is reduced now."""
        self._contributions = Contributions()
        self._result: Result | None = None
        self._reducing: Go | None = None
        self._next_go: Go | None = None
        self._loads = 0
        self._is_loading = False
        self._is_leaving = False
        self._led = 0
        """Number of the last generation that this member was told to serve its replica in."""
        self._positions: dict[int, Position] = {}
        """Leader, while it forms a generation: where the others are."""
        self._helped: set[int] = set()
        """Leader: members that are being sent what they lack."""
        self._has_asked = False
        """Leader: whether a follower sends what the leader lacks."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads its generation."""
        return self._rank == LEADER

    @property
    def is_round_under_way(self) -> bool:
        """Whether batches of the next round are offered, as far as this member knows: a leader knows of all."""
        return self._reducing is not None or self._contributions.is_offered(self.position.step)

    def handle(self, event: events.RingEvent, now_s: float) -> Sequence[commands.RingCommand]:  # noqa: ARG002
        """Decide what follows from an event. Time decides nothing here.

        Returns:
            Commands in the order in which they have to be passed to their lanes.

        Raises:
            InvariantError: a defect; the process has to end.
        """
        if self.phase is not Phase.LEFT:
            self._on_event(event)
        issued, self._commands = self._commands, []
        return issued

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator, between two events."""
        if self._reducing is not None and (self.phase is not Phase.OPEN or self._reducing.step != self.position.step):
            raise InvariantError(
                f"step {self.position.step} is reduced as {self._reducing.step} while {self.phase.value}"
            )
        if self.phase is Phase.OPEN and self.generation and self.position.lineage != self.generation.number:
            raise InvariantError("an open generation has a state of another lineage")
        if self.position.has_result and self._result is None:
            raise InvariantError("a result is promised and not there")
        if any(offer.step < self.position.step for offer in self._contributions.all_own):
            raise InvariantError("a committed batch is still offered")

    def _on_event(self, event: events.RingEvent) -> None:
        match event:
            case events.LeaderReached() | events.PeerLost() | events.ReduceFailed() | events.MessageReceived():
                if self._is_present(event.generation):  # What comes from a former generation is void.
                    self._on_network(event)
            case events.GenerationFormed(generation=generation):
                self._on_generation(generation)
            case events.Contributed():
                self._on_contributed(event)
            case events.ReduceFinished():
                self._on_reduced(event)
            case events.Started(has_model=has_model, step=step):
                self.position = Position(step=step, has_model=has_model)
                self._report("started")
            case events.ModelReady(step=step):
                self._on_model(step)
            case events.StateLoaded(step=step):
                self._on_loaded(step)
            case events.LeaveRequested():
                self._is_leaving = True
                if self._reducing is None:
                    self._depart()
            case TimerFired():
                pass
            case _:
                assert_never(event)

    def _on_network(
        self, event: events.LeaderReached | events.PeerLost | events.ReduceFailed | events.MessageReceived
    ) -> None:
        match event:
            case events.LeaderReached():
                self._say_hello()
            case events.PeerLost(reason=reason) | events.ReduceFailed(reason=reason):
                self._abandon(reason)
            case events.MessageReceived(rank=rank, message=message):
                try:
                    self._take(rank, message)
                except ProtocolError as error:
                    self._abandon(str(error))
            case _:
                assert_never(event)

    # --- generations --------------------------------------------------------------------------------------------------

    def _is_present(self, number: int) -> bool:
        """Whether a number is that of the generation that this member works in."""
        is_member = self.phase in (Phase.FORMING, Phase.OPEN)
        return is_member and self.generation is not None and self.generation.number == number

    def _on_generation(self, generation: Generation) -> None:
        if generation.number <= self._newest:
            return
        self._newest = generation.number
        if self._rank_in(generation) is None:
            # It was declared dead, or its report came too late: what it commits now would be void.
            self._following = None
            if self.phase is Phase.IDLE:
                self._report(f"generation {generation.number} was formed without this member")
            else:
                self._abandon(f"generation {generation.number} was formed without this member")
        elif self._reducing is not None and self._keeps_all(generation):
            self._following = generation
        else:
            self._enter(generation)

    def _keeps_all(self, generation: Generation) -> bool:
        """Whether all present members are in the next generation, so that the round can be finished before it."""
        present = self.generation.members if self.generation else ()
        kept = {_identity(member) for member in generation.members}
        return all(_identity(member) in kept for member in present)

    def _rank_in(self, generation: Generation) -> int | None:
        own = self._worker, self._incarnation
        return next((rank for rank, member in enumerate(generation.members) if _identity(member) == own), None)

    def _enter(self, generation: Generation) -> None:
        rank = self._rank_in(generation)
        if rank is None:
            raise InvariantError(f"{self._worker} is no member of generation {generation.number}")
        self._end_generation()
        self.generation, self._rank, self.phase = generation, rank, Phase.FORMING
        self._issue(commands.Connect(generation=generation, rank=rank))
        if not self.is_leader:
            self._issue(commands.Follow(generation=generation))
        self._reconcile()

    def _abandon(self, reason: str) -> None:
        """Give up the present generation: enter the next one, or ask the master for it."""
        following = self._following
        self._end_generation()
        if self._is_leaving:
            self._depart()
        elif following is not None:
            self._enter(following)
        else:
            self._report(reason)

    def _end_generation(self) -> None:
        if self.generation is not None and self.phase in (Phase.FORMING, Phase.OPEN):
            self._issue(commands.Disconnect(generation=self.generation.number))
        self.phase, self._rank = Phase.IDLE, -1
        self._following = self._reducing = self._next_go = None
        self._contributions.on_generation()
        self._positions.clear()
        self._helped.clear()
        self._has_asked = False

    def _depart(self) -> None:
        self._end_generation()
        self.phase = Phase.LEFT
        self._issue(commands.Left())

    def _report(self, reason: str) -> None:
        left = self.generation.number if self.generation is not None else 0
        position = self.position
        self._issue(commands.ReportReady(left=left, step=position.step, has_model=position.has_model, reason=reason))

    # --- forming ------------------------------------------------------------------------------------------------------

    def _say_hello(self) -> None:
        """Tell the leader the position; not while a copy is loaded, for then it is about to change."""
        if self.phase is Phase.FORMING and not self.is_leader and not self._is_loading:
            self._send(LEADER, Hello(position=self.position))

    def _reconcile(self) -> None:
        """Leader: have all members get the newest state, and open the generation when they have it."""
        if self.generation is None or self.phase is not Phase.FORMING or not self.is_leader or self._is_loading:
            return
        if len(self._positions) < len(self.generation.members) - 1:
            return
        positions = {LEADER: self.position, **self._positions}
        first = donor(positions)
        newest = positions[first]
        if not newest.has_model:
            self._lead(self.generation)
        elif (needed := lack(self.position, newest)) is not Lack.NOTHING:
            if not self._has_asked:
                self._has_asked = True
                self._send(first, Want(kind=Kind(needed.value)))
        else:
            self._help_others(self.generation)

    def _help_others(self, generation: Generation) -> None:
        behind = 0
        for rank, position in self._positions.items():
            needed = lack(position, self.position)
            behind += needed is not Lack.NOTHING
            if needed is not Lack.NOTHING and rank not in self._helped:
                self._helped.add(rank)
                self._give(rank, Kind(needed.value))
        if not behind:
            for rank in self._positions:
                self._send(rank, Opened(position=self.position))
            self._open(generation)
            self._lead(generation)

    def _lead(self, generation: Generation) -> None:
        if self._led != generation.number:
            self._led = generation.number
            self._issue(commands.Lead(generation=generation))

    def _give(self, rank: int, kind: Kind) -> None:
        number = self.generation.number if self.generation else 0
        match kind:
            case Kind.RESULT if self._result is not None:
                self._issue(commands.SendResult(generation=number, rank=rank, result=self._result))
            case Kind.STATE:
                self._issue(commands.SendState(generation=number, rank=rank, position=self.position))
            case _:
                raise InvariantError("a result was promised and is not there")

    def _open(self, generation: Generation) -> None:
        """All states are equal: the last result is not needed any more, and batches are offered again."""
        self.phase = Phase.OPEN
        self.position = self.position.opened(generation.number)
        self._result = None
        for offer in self._contributions.own(self.position.step):
            self._offer(offer)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _take(self, rank: int, message: Message) -> None:
        match message:
            case Hello(position=position):
                self._positions[rank] = position
                self._helped.discard(rank)
                self._reconcile()
            case Want(kind=kind):
                self._give(rank, kind)
            case Result():
                self._on_result(message)
            case State():
                self._load(message)
            case Opened() if self.generation is not None and self.phase is Phase.FORMING:
                if not message.position.is_same(self.position):
                    raise ProtocolError(f"a generation opens at {message.position}, and this member is elsewhere")
                self._open(self.generation)
            case Opened():
                raise ProtocolError("a generation was opened twice")
            case Offer(step=step):
                if step >= self.position.step:
                    self._contributions.offer(rank, message)
                    self._try_go()
            case Go():
                self._on_go(message)
            case _:
                assert_never(message)

    def _on_result(self, result: Result) -> None:
        if (result.lineage, result.step) != (self.position.lineage, self.position.step):
            raise ProtocolError(f"a result of step {result.step + 1} came at step {self.position.step}")
        self._commit(result)
        self._say_hello()
        self._reconcile()

    def _load(self, state: State) -> None:
        if self.generation is None or state.position.age <= self.position.age:
            return  # The leader asked for it, and has restored a model of its own meanwhile.
        if self.is_leader:
            # It may still be restoring a model, for a generation that had none. It leads with the copy when it opens.
            self._led = 0
            self._issue(commands.Follow(generation=self.generation))
        self._is_loading = True
        self._loads += 1
        self.position = replace(state.position, has_result=False)
        self._result = None
        self._contributions.clear()
        self._issue(commands.Load(state=state))

    def _on_loaded(self, step: int) -> None:
        if step != self.position.step:
            raise InvariantError(f"a copied state is at step {step} instead of {self.position.step}")
        self._is_loading = False
        self._say_hello()
        self._reconcile()

    def _on_model(self, step: int) -> None:
        if self.position.has_model or self._is_loading:
            return
        self.position = Position(lineages=(self._led,), step=step, has_model=True)
        self._reconcile()

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _on_contributed(self, event: events.Contributed) -> None:
        if event.loads != self._loads or event.step < self.position.step:
            return  # It was computed for a state that is gone, or its round was committed with another member's.
        offer = Offer(step=event.step, round=event.round, facts=event.facts)
        if self._contributions.keep(offer) and self.phase is Phase.OPEN:
            try:
                self._offer(offer)
            except ProtocolError as error:  # A follower has offered a batch of another round.
                self._abandon(str(error))

    def _offer(self, offer: Offer) -> None:
        if self.is_leader:
            self._contributions.offer(LEADER, offer)
            self._try_go()
        else:
            self._send(LEADER, offer)

    def _try_go(self) -> None:
        """Leader: have the next round reduced if all its batches are there."""
        if self._reducing is not None or self.generation is None or self.phase is not Phase.OPEN:
            return
        go = self._contributions.go(self.position.step)
        if go is not None:
            for rank in range(1, len(self.generation.members)):
                self._send(rank, go)
            self._begin(go)

    def _on_go(self, go: Go) -> None:
        if self.phase is Phase.OPEN and self._reducing is None and go.step == self.position.step:
            self._begin(go)
        elif self._reducing is not None and self._next_go is None and go.step == self._reducing.step + 1:
            self._next_go = go  # The others have finished the round that is still reduced here.
        else:
            raise ProtocolError(f"step {go.step + 1} is to be reduced, and this member is at {self.position.step}")

    def _begin(self, go: Go) -> None:
        own = [
            (entry.facts.task, entry.facts.batch)
            for entry in go.entries
            if entry.rank == self._rank and not entry.facts.is_empty
        ]
        if not all(map(self._contributions.owns, own)):
            raise InvariantError(f"batches of step {go.step + 1} are not here: {own}")
        self._reducing = go
        number = self.generation.number if self.generation else 0
        self._issue(commands.Reduce(generation=number, step=go.step, own=own, has_gradient=go.has_gradient))

    def _on_reduced(self, event: events.ReduceFinished) -> None:
        if not self._is_present(event.generation) or self._reducing is None:
            return  # The generation broke before. The round is repeated, or another member has the result.
        go, self._reducing = self._reducing, None
        lineage = self.position.lineage
        self._commit(Result(lineage=lineage, step=go.step, batches=go.batches, gradient=event.gradient))
        following, next_go = self._following, self._next_go
        if self._is_leaving:
            self._depart()
        elif following is not None:
            self._enter(following)
        elif next_go is not None:
            self._next_go = None
            self._on_go(next_go)
        elif self.is_leader:
            self._try_go()

    def _commit(self, result: Result) -> None:
        self._issue(commands.Apply(batches=result.batches, gradient=result.gradient))
        self._result = result
        self.position = self.position.advanced()
        self._contributions.on_committed(self.position.step)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _send(self, rank: int, message: Message) -> None:
        number = self.generation.number if self.generation else 0
        self._issue(commands.Send(generation=number, rank=rank, message=message))

    def _issue(self, command: commands.RingCommand) -> None:
        self._commands.append(command)


def _identity(member: RingMember) -> tuple[PodName, Incarnation]:
    return member.worker, member.incarnation
