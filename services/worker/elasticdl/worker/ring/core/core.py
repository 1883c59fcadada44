"""The core of one member of a ring.

A generation is formed by the master. Its members connect, bring all states to the newest position, and *open* it. While
it is open, the leader collects offers, and has all members reduce a round when it is complete; a member commits when
its own part of the ring is done. The loss of any connection ends the generation for the member that notices it: it
closes all its own connections, so that its neighbours notice, too, and reports that it is ready for the next
generation. What it has computed and not committed stays with it.

A process that is no member follows the leader of the present generation until it is near: see ``joiners``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import assert_never

from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.core_runner import TimerFired
from elasticdl.worker.ring.core import commands, events
from elasticdl.worker.ring.core.comparison import Checksums, Comparison
from elasticdl.worker.ring.core.contributions import Contributions
from elasticdl.worker.ring.core.formation import Formation, Verdict, wanted
from elasticdl.worker.ring.core.generations import joined, keeps_all, rank_in
from elasticdl.worker.ring.core.joiners import Copy, Joiners
from elasticdl.worker.ring.core.messages import (
    Differs,
    Go,
    Hello,
    Message,
    Near,
    Offer,
    Opened,
    Result,
    State,
    Want,
    Weights,
)
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.core.results import KEPT_BYTES_MAX, Results
from elasticdl.worker.ring.ports import LEADER, Generation


class Phase(Enum):
    """Where a member is in the course of a generation."""

    IDLE = "idle"
    """It waits for the master to form a generation with it."""
    JOINING = "joining"
    """It is no member of the present generation, and copies the state from its leader meanwhile."""
    FORMING = "forming"
    """Members connect and compare their states."""
    OPEN = "open"
    """Rounds are reduced and committed."""
    LEFT = "left"
    """It has left for good."""


class RingCore:
    """Decides everything that one member does. Not thread-safe."""

    def __init__(self, worker: PodName, incarnation: Incarnation, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._identity = worker, incarnation
        self._commands: list[commands.RingCommand] = []
        self.phase = Phase.IDLE
        self.generation: Generation | None = None
        """The present one, also while it is joined; after a break, the one that this member has given up."""
        self.position = Position()
        self._rank, self._size = -1, 0
        self._left = 0
        """Number of the last generation that this member was in."""
        self._newest = 0
        """Number of the newest generation that the master has published."""
        self._following: Generation | None = None
        """A generation with more members, to be entered after the round that is reduced now."""
        self._contributions = Contributions()
        self._results = Results(kept_bytes_max)
        self._joiners = Joiners()
        """Leader: who is brought up to date while rounds are committed."""
        self.comparison = Comparison()
        """Leader: the weights of all members."""
        self._reducing: Go | None = None
        self._next_go: Go | None = None
        self._loads = 0
        self._is_loading = False
        self._is_leaving = False
        self._led = 0
        """Number of the last generation that this member was told to serve its replica in."""
        self._formation = Formation()

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
        if self.position.has_result and self._results.last is None:
            raise InvariantError("a result is promised and not there")
        if any(offer.step < self.position.step for offer in self._contributions.all_own):
            raise InvariantError("a committed batch is still offered")

    def _on_event(self, event: events.RingEvent) -> None:
        if isinstance(event, events.FromGeneration):
            if self._is_present(event.generation):  # What comes from a former generation is void.
                self._on_network(event)
            return
        match event:
            case events.GenerationFormed(generation=generation):
                self._on_generation(generation)
            case events.Contributed():
                self._on_contributed(event)
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

    def _on_network(self, event: events.FromGeneration) -> None:
        match event:
            case events.LeaderReached():
                self._say_hello()
            case events.PeerLost(reason=reason) | events.ReduceFailed(reason=reason):
                self._abandon(reason)
            case events.ReduceFinished():
                self._on_reduced(event)
            case events.JoinerLost(rank=rank):
                self._joiners.on_lost(rank)
            case events.WeightsChecked(step=step, checksums=checksums):
                self._on_weights(step, checksums)
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
        works = self.phase in (Phase.JOINING, Phase.FORMING, Phase.OPEN)
        return works and self.generation is not None and self.generation.number == number

    def _on_generation(self, generation: Generation) -> None:
        if generation.number <= self._newest:
            return
        self._newest = generation.number
        if rank_in(generation, self._identity) is None:
            # It was declared dead, or its report came too late: what it commits now would be void.
            self._end_generation()
            if self._is_leaving:
                self._depart()
                return
            self._report(f"generation {generation.number} was formed without this member")
            self._join(generation)
        elif self._reducing is not None and keeps_all(self.generation, generation):
            self._following = generation
        else:
            self._enter(generation)

    def _enter(self, generation: Generation) -> None:
        rank = rank_in(generation, self._identity)
        if rank is None:
            raise InvariantError(f"{self._identity[0]} is no member of generation {generation.number}")
        self._end_generation()
        self._joiners.on_joined(joined(self.generation, generation))
        self.generation, self.phase = generation, Phase.FORMING
        self._rank, self._size = rank, len(generation.members)
        self._issue(commands.Connect(generation=generation, rank=rank))
        if not self.is_leader:
            self._issue(commands.Follow(generation=generation))
        self._reconcile()

    def _join(self, generation: Generation, *, is_again: bool = False) -> None:
        """Copy the state from the leader of a generation that this process is no member of."""
        self.generation, self.phase = generation, Phase.JOINING
        self._issue(commands.Follow(generation=generation))
        self._issue(commands.Connect(generation=generation, rank=None, is_again=is_again))

    def _abandon(self, reason: str) -> None:
        """Give up the present generation: enter the next one, or ask the master for it."""
        following, joining = self._following, self.generation if self.phase is Phase.JOINING else None
        self._end_generation()
        if self._is_leaving:
            self._depart()
        elif joining is not None:
            self._join(joining, is_again=True)
        elif following is not None:
            self._enter(following)
        else:
            self._report(reason)

    def _end_generation(self) -> None:
        if self.generation is not None and self.phase in (Phase.JOINING, Phase.FORMING, Phase.OPEN):
            self._issue(commands.Disconnect(generation=self.generation.number))
            self._left = self._left if self.phase is Phase.JOINING else self.generation.number
        self._joiners.on_generation_ended()
        self.comparison.clear()
        self.phase, self._rank = Phase.IDLE, -1
        self._following = self._reducing = self._next_go = None
        self._contributions.on_generation()
        self._formation.clear()

    def _depart(self) -> None:
        self._end_generation()
        self.phase = Phase.LEFT
        self._issue(commands.Left())

    def _report(self, reason: str, *, is_near: bool = False) -> None:
        step, has_model = self.position.step, self.position.has_model
        self._issue(
            commands.ReportReady(left=self._left, step=step, has_model=has_model, reason=reason, is_near=is_near)
        )

    # --- forming ------------------------------------------------------------------------------------------------------

    def _say_hello(self) -> None:
        """Tell the leader the position; not while a copy is loaded, for then it is about to change."""
        if self.phase in (Phase.JOINING, Phase.FORMING) and not self.is_leader and not self._is_loading:
            self._send(LEADER, Hello(position=self.position))

    def _reconcile(self) -> None:
        """Leader: have all members get the newest state, and open the generation when they have it."""
        if self.generation is None or self.phase is not Phase.FORMING or not self.is_leader or self._is_loading:
            return
        verdict, given = self._formation.decide(self.position, self._results, self._size)
        for rank, one in given:
            self._give(rank, one)
        if verdict is Verdict.OPEN:
            for rank in range(1, self._size):
                self._send(rank, Opened(position=self.position))
            self._open(self.generation)
        if verdict is not Verdict.WAIT:
            self._lead(self.generation)

    def _lead(self, generation: Generation) -> None:
        if self._led != generation.number:
            self._led = generation.number
            self._issue(commands.Lead(generation=generation))

    def _give(self, rank: int, given: Want | Near | Result | Copy) -> None:
        number = self.generation.number if self.generation else 0
        match given:
            case Result():
                self._issue(commands.SendResult(generation=number, rank=rank, result=self._results.give(given)))
            case Copy(since=since):
                self._issue(commands.SendState(generation=number, rank=rank, position=self.position, since=since))
            case Want() | Near():
                self._send(rank, given)
            case _:
                assert_never(given)

    def _help_joiners(self) -> None:
        """Leader: give each joiner what it needs next."""
        if self.phase is Phase.OPEN and self.is_leader:
            for rank, given in self._joiners.serve(self._results, self.position):
                self._give(rank, given)

    def _open(self, generation: Generation) -> None:
        """All states are equal: only joiners need results of former rounds. Batches are offered again."""
        self.phase = Phase.OPEN
        self.position = self.position.opened(generation.number)
        self._issue(commands.CheckLast(generation=generation.number))
        if self._joiners.keep_from is None:
            self._results.clear()
        for offer in self._contributions.own(self.position.step):
            self._offer(offer)
        self._help_joiners()

    # --- messages -----------------------------------------------------------------------------------------------------

    def _take(self, rank: int, message: Message) -> None:
        match message:
            case Hello() | Want() | State() | Opened() | Near():
                self._take_while_forming(rank, message)
            case Result():
                self._on_result(message)
            case Offer(step=step):
                if step >= self.position.step:
                    self._contributions.offer(rank, message)
                    self._try_go()
            case Go():
                self._on_go(message)
            case Weights(step=step, checksums=checksums):
                self._compare(rank, step, checksums)
            case Differs(step=step, tensor=tensor):
                self._on_difference(step, tensor)
            case _:
                assert_never(message)

    def _take_while_forming(self, rank: int, message: Hello | Want | State | Opened | Near) -> None:
        match message:
            case Hello(position=position) if rank >= self._size:
                self._joiners.on_hello(rank, position)
                self._help_joiners()
            case Hello(position=position):
                self._formation.on_hello(rank, position)
                self._reconcile()
            case Want(kind=kind):
                self._give(rank, wanted(kind, self._results, self.position))
            case Near():
                self._report("it has a copy of the model", is_near=True)
            case State():
                self._load(message)
            case Opened() if self.generation is not None and self.phase is Phase.FORMING:
                if not message.position.is_same(self.position):
                    raise ProtocolError(f"a generation opens at {message.position}, and this member is elsewhere")
                self._open(self.generation)
            case Opened():
                raise ProtocolError("a generation was opened twice")

    def _on_result(self, result: Result) -> None:
        if not result.before.is_same(self.position):
            raise ProtocolError(f"a result of step {result.step + 1} came at step {self.position.step}")
        self.position = replace(self.position, lineages=result.before.lineages)
        self._commit(result, generation=None)
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
        self._results.clear()
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
            go = replace(go, needed=self._joiners.needed)
            for rank in range(1, len(self.generation.members)):
                self._send(rank, go)
            self._begin(go)

    def _on_go(self, go: Go) -> None:
        if self.phase is Phase.OPEN and self._reducing is None and go.step == self.position.step:
            self._joiners.on_needed(go.needed)
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
        records = sum(facts.records for facts in go.batches if not facts.is_empty)
        has_gradient = go.has_gradient
        self._issue(
            commands.Reduce(generation=number, step=go.step, own=own, has_gradient=has_gradient, records=records)
        )

    def _on_reduced(self, event: events.ReduceFinished) -> None:
        if self._reducing is None:
            return
        go, self._reducing = self._reducing, None
        self._commit(
            Result(before=self.position, batches=go.batches, gradient=event.gradient, size_bytes=event.size_bytes),
            generation=event.generation,
        )
        self._help_joiners()
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

    def _commit(self, result: Result, *, generation: int | None) -> None:
        unneeded = self._results.add(result, keep_from=self._joiners.keep_from)
        self._issue(
            commands.Apply(generation=generation, batches=result.batches, gradient=result.gradient, unneeded=unneeded)
        )
        self.position = self.position.advanced()
        self._contributions.on_committed(self.position.step)

    # --- equal replicas -----------------------------------------------------------------------------------------------

    def _on_weights(self, step: int, checksums: Checksums) -> None:
        if self.is_leader:
            self._compare(LEADER, step, checksums)
        else:
            self._send(LEADER, Weights(step=step, checksums=checksums))

    def _compare(self, rank: int, step: int, checksums: Checksums) -> None:
        differ = self.comparison.add(rank, step, checksums, size=self._size)
        for other in [one for one in differ if one != LEADER]:
            self._send(other, Differs(step=step, tensor=differ[other]))
        if LEADER in differ:
            self._on_difference(step, differ[LEADER])

    def _on_difference(self, step: int, tensor: int) -> None:
        """The own state is worth nothing: break the generation, and copy that of another member in the next one."""
        self._issue(commands.TellDifference(step=step, tensor=tensor))
        self.position = Position()
        self._results.clear()
        self._contributions.clear()
        self._abandon(f"its weights were not those of the others after step {step}")

    # --- commands -----------------------------------------------------------------------------------------------------

    def _send(self, rank: int, message: Message) -> None:
        number = self.generation.number if self.generation else 0
        self._issue(commands.Send(generation=number, rank=rank, message=message))

    def _issue(self, command: commands.RingCommand) -> None:
        self._commands.append(command)
