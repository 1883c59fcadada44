"""Members, network and master, and every step that could be taken next."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, assert_never

from tests.sim.ring.batches import check_prepared, choices_of_batches
from tests.sim.ring.member import SimMember, name_of
from tests.sim.ring.network import Link, Reduction
from tests.sim.ring.replica import Copied, Replica, facts_of
from tests.sim.ring.tables import Tables

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.worker.ring.core import Phase, RingCore, commands, events
from elasticdl.worker.ring.core.messages import BatchKey, Go, State
from elasticdl.worker.ring.ports import Generation

Choice = tuple[str, Callable[[], None]]


class World:
    """Everything. ``choices`` lists what could happen next; a schedule picks."""

    def __init__(
        self,
        *,
        members: int,
        rounds: int,
        width: int,
        chance: random.Random,
        kept_bytes_max: int = 1000,
        compares: bool = True,
        tables: Tables | None = None,
    ) -> None:
        self.rounds, self.width, self.chance, self.kept_bytes_max = rounds, width, chance, kept_bytes_max
        self.compares, self.tables = compares, tables
        self.members: list[SimMember] = []
        self.links: dict[tuple[int, int], Link] = {}
        """By generation and rank of the follower, or of a joiner: beyond those of the members."""
        self._by_name: dict[str, SimMember] = {}
        self._ends: defaultdict[str, list[tuple[Link, int]]] = defaultdict(list)
        """By member: its connections, and its ranks there."""
        self.joiners: dict[tuple[int, int], SimMember] = {}
        """By generation and rank."""
        self.pauses: list[str] = []
        """What was sent while a later generation than the first was formed, so that all its members waited."""
        self.copies = 0
        """States that were sent while rounds were committed."""
        self.repeated = 0
        """States that were copied to a member although the leader had been told as a follower to keep the results."""
        self.copied = Copied()
        self.reductions: dict[tuple[int, int], Reduction] = {}
        self.generations: dict[int, Generation] = {}
        self.log: deque[tuple[str, RingMember, int, bool, bool]] = deque()
        self.ready: dict[str, tuple[RingMember, bool, bool]] = {}
        self.gone: set[str] = set()
        self.expected = members
        self.assigned: dict[BatchKey, str] = {}
        self.errors = 0
        """Spoilt replicas so far."""
        for _ in range(members):
            self.add_member()

    # --- faults -------------------------------------------------------------------------------------------------------

    def add_member(self) -> SimMember:
        """A new process, which asks to take part."""
        number = len(self.members)
        identity = RingMember(
            worker=PodName(f"worker-{number}"), incarnation=Incarnation(f"i{number}"), address=f"host:{number}"
        )
        member = SimMember(
            identity=identity,
            core=RingCore(identity.worker, identity.incarnation, kept_bytes_max=self.kept_bytes_max),
            replica=Replica(rounds=self.rounds, width=self.width),
        )
        self.members.append(member)
        self._by_name[member.name] = member
        self.post(member, events.Started())
        if self.generations:
            member.published.append(self.generations[max(self.generations)])
        return member

    def kill(self, member: SimMember) -> None:
        """A process dies: its connections are reset."""
        member.is_alive = False
        self._close_links(member, resets=self.chance.random() < 0.5)
        self.log.append(("gone", member.identity, 0, False, False))

    def freeze(self, member: SimMember) -> None:
        """A process stops, for the master to declare it gone; its connections stay."""
        member.is_frozen = True
        self.log.append(("gone", member.identity, 0, False, False))

    def leave(self, member: SimMember) -> None:
        """A process is asked to end."""
        self.post(member, events.LeaveRequested())

    def spoil(self, member: SimMember) -> None:
        """The memory of a process gets an error."""
        self.errors += 1
        member.replica.error = self.errors

    def cut(self, member: SimMember) -> None:
        """The connections of a process that works are reset."""
        for link, rank in self._ends[member.name]:
            link.close(link.other(rank), resets=True)
            link.close(rank, resets=True)
            link.told.clear()

    # --- what may happen next -----------------------------------------------------------------------------------------

    def choices(self) -> list[Choice]:
        """All steps that could be taken now, in a fixed order."""
        found: list[Choice] = []
        if self.log:
            found.append(("master", self.master_step))
        for member in self.members:
            if member.runs:
                found += self.choices_of(member)
        return found

    def choices_of(self, member: SimMember) -> list[Choice]:
        found: list[Choice] = []
        if member.published:
            found.append((f"{member.name} hears of a generation", lambda: self._publish(member)))
        for lane, queue in member.lanes.items():
            if queue and not (lane is commands.Lane.STATE and member.is_busy):
                found.append((f"{member.name} {lane.value}: {name_of(queue[0])}", self._executed(member, lane)))
        if member.pushed:
            found.append((f"{member.name} contributes", lambda: self.post(member, member.pushed.popleft())))
        if member.initialises:
            found.append((f"{member.name} initialises", lambda: self._initialise(member)))
        if member.checked is not None:
            found.append((f"{member.name} has checked {member.checked.step}", lambda: self._checked(member)))
        for link, rank in self._ends[member.name]:
            found += self._choices_of_link(member, link, rank)
        if member.reducing is not None:
            found += self._choices_of_reduction(member, member.reducing)
        return [*found, *choices_of_batches(self, member)]

    def _choices_of_link(self, member: SimMember, link: Link, rank: int) -> list[Choice]:
        if link.is_up and link.queues[rank]:
            kind = type(link.queues[rank][0]).__name__
            return [(f"{member.name} receives {kind} from {link.other(rank)}", self._received(member, link, rank))]
        if link.closed and rank not in link.told:

            def lose() -> None:
                link.told.add(rank)
                if (other := link.other(rank)) >= len(self.generations[link.generation].members):
                    self.post(member, events.JoinerLost(generation=link.generation, rank=other))
                    return
                self.post(member, events.PeerLost(generation=link.generation, reason=f"rank {link.other(rank)}"))

            return [(f"{member.name} loses {link.other(rank)}", lose)]
        if link.is_up and rank != 0 and not link.has_greeted:

            def greet() -> None:
                link.has_greeted = True
                self.post(member, events.LeaderReached(generation=link.generation))

            return [(f"{member.name} reaches the leader", greet)]
        return []

    def _choices_of_reduction(self, member: SimMember, command: commands.Reduce) -> list[Choice]:
        reduction = self.reductions[command.generation, command.step]
        found: list[Choice] = []
        if reduction.is_possible:
            found.append((f"{member.name} reduced {command.step}", lambda: self._reduced(member, command, reduction)))
        if reduction.broken:
            found.append((f"{member.name} fails in {command.step}", lambda: self._failed(member, command)))
        return found

    # --- members ------------------------------------------------------------------------------------------------------

    def post(self, member: SimMember, event: events.RingEvent) -> None:
        """Give a core an event, and check it."""
        for command in member.core.handle(event, 0.0):
            if isinstance(command, commands.Disconnect):
                self._close_links(member, resets=self.chance.random() < 0.5)
            elif self.compares or not isinstance(command, commands.CheckLast):
                member.lanes[command.lane].append(command)
        member.core.check()

    def _executed(self, member: SimMember, lane: commands.Lane) -> Callable[[], None]:
        return lambda: self._execute(member, member.lanes[lane].popleft())

    def _execute(self, member: SimMember, command: commands.RingCommand) -> None:
        match command:
            case commands.Send() | commands.SendResult() | commands.SendState():
                self._execute_send(member, command)
            case commands.Connect() | commands.Disconnect() | commands.Left():
                self._execute_link(member, command)
            case commands.Reduce():
                self._begin(member, command)
            case commands.Apply(generation=generation, batches=batches, gradient=gradient):
                check_prepared(self.tables, batches)
                member.replica.apply(batches, gradient)
                member.kept -= {(facts.task, facts.batch) for facts in batches}
                self._check_weights(member, generation)
            case commands.CheckLast(generation=generation):
                self._check_weights(member, generation if member.replica.is_done else None)
            case commands.Load(state=state):
                self._load(member, state)
            case commands.ReportReady(left=left, has_model=has_model, is_near=is_near):
                self.log.append(("ready", member.identity, left, has_model, is_near))
            case commands.Lead() | commands.Follow():
                member.initialises = isinstance(command, commands.Lead) and not member.replica.has_model
            case commands.TellDifference():
                if not self.errors:
                    raise AssertionError("equal replicas differ")
                member.was_gone = True  # Its state is worth nothing, also if it is the newest one.
            case _:
                assert_never(command)

    def _check_weights(self, member: SimMember, generation: int | None) -> None:
        if generation is None or not self.compares:
            return
        step, checksums = member.replica.step, member.replica.checksums
        member.checked = events.WeightsChecked(generation=generation, step=step, checksums=checksums)

    def _checked(self, member: SimMember) -> None:
        event, member.checked = member.checked, None
        if event is not None:
            member.compared.add((event.generation, event.step))
            self.post(member, event)

    def _execute_link(self, member: SimMember, command: commands.Connect | commands.Disconnect | commands.Left) -> None:
        match command:
            case commands.Connect(generation=generation, rank=None):
                self._connect_joiner(member, generation)
            case commands.Connect(generation=generation, rank=rank):
                self._connect(member, generation, rank or 0)
            case commands.Disconnect():
                raise AssertionError("executed at once")
            case commands.Left():
                self.kill(member)
            case _:
                assert_never(command)

    def _execute_send(
        self, member: SimMember, command: commands.Send | commands.SendResult | commands.SendState
    ) -> None:
        number, rank = command.generation, command.rank
        match command:
            case commands.Send(message=message):
                self._send(member, number, rank, message)
            case commands.SendResult(result=result):
                self._note_pause(member, number, "result")
                self._send(member, number, rank, result)
            case commands.SendState(position=position, since=since):
                if position.step != member.replica.step:
                    raise AssertionError("a state is sent as of another step")
                self._note_pause(member, number, "state")
                self.copies += member.core.phase is Phase.OPEN
                state = self.copied.take(
                    (member.name, number), member.replica, position, since=since, chance=self.chance
                )
                self._send(member, number, rank, state)
            case _:
                assert_never(command)

    def _note_pause(self, member: SimMember, number: int, what: str) -> None:
        if number > 1 and member.core.phase is Phase.FORMING and member.core.is_leader:
            self.pauses.append(what)

    def _initialise(self, member: SimMember) -> None:
        """No member has a model: it begins from the start, and everything is computed again."""
        member.initialises = False
        member.replica.has_model = True
        if self.tables:
            self.tables.starts += 1
        for other in self.members:
            other.computed.clear()
        self._assign()
        self.post(member, events.ModelReady(step=0))

    def _load(self, member: SimMember, state: State) -> None:
        before = member.replica.history
        history, error = state.parts
        if member.replica.has_model and not member.was_gone and history[: len(before)] != before:
            raise AssertionError(f"{member.name} survived, and repeats a committed step")
        generation = member.core.generation
        if generation and member.replica.has_model and history[: len(before)] == before:
            self.repeated += any(step <= len(before) for step in self._member_at(generation, 0).needed)
        number = generation.number if generation else 0
        if member.was_gone or not member.replica.has_model:
            member.computed = {key: credit for key, credit in member.computed.items() if credit >= number}
        member.replica.history, member.replica.error, member.replica.has_model = list(history), error, True
        member.kept.clear()
        member.was_gone = False
        member.loads += 1
        self.post(member, events.StateLoaded(step=member.replica.step))

    # --- computing ----------------------------------------------------------------------------------------------------

    def computing(self, member: SimMember, key: BatchKey) -> Callable[[], None]:
        def compute() -> None:
            replica = member.replica
            member.computed[key] = member.core.generation.number if member.core.generation else 0
            member.kept.add(key)
            contributed = events.Contributed(
                step=replica.step, loads=member.loads, round=replica.round_at(replica.step), facts=facts_of(key)
            )
            member.pushed.append(contributed)

        return compute

    def _assign(self) -> None:
        """Give every batch of a member that is gone to another one."""
        present = [member for member in self.members if member.is_alive and member.name not in self.gone]
        if not present:
            return
        for step in range(self.rounds):
            for task, key in enumerate(Replica(rounds=self.rounds, width=self.width).round_at(step)):
                if self.assigned.get(key) not in {member.name for member in present}:
                    self.assigned[key] = present[task % len(present)].name

    # --- network ------------------------------------------------------------------------------------------------------

    def _link(self, number: int, follower: int) -> Link:
        """The connection of a follower or joiner with the leader."""
        if (number, follower) not in self.links:
            link = self.links[number, follower] = Link(generation=number, ends=(0, follower))
            for rank in link.ends:
                self._ends[self._member_at(self.generations[number], rank).name].append((link, rank))
        return self.links[number, follower]

    def _connect_joiner(self, member: SimMember, generation: Generation) -> None:
        core, number = member.core, generation.number
        if core.generation is not generation or core.phase is not Phase.JOINING:
            return  # It was disconnected before.
        rank = len(generation.members) + sum(key[0] == number for key in self.joiners)
        self.joiners[number, rank] = member
        link = self._link(number, rank)
        link.ready.add(rank)
        leader = self._member_at(generation, 0)
        if leader.core.generation is generation and self._is_working(leader):
            link.ready.add(0)
        if not leader.is_alive or self._has_ended(leader, generation):
            link.close(0, resets=True)

    def _has_ended(self, member: SimMember, generation: Generation) -> bool:
        """Whether a generation is over for one of its members."""
        present = member.core.generation.number if member.core.generation else 0
        return present > generation.number or (present == generation.number and not self._is_working(member))

    def _followers(self, generation: Generation) -> list[int]:
        """Ranks of all that are connected with the leader."""
        joiners = [rank for number, rank in self.joiners if number == generation.number]
        return [*range(1, len(generation.members)), *joiners]

    def _connect(self, member: SimMember, generation: Generation, rank: int) -> None:
        core = member.core
        if core.generation is not generation or core.phase is Phase.IDLE:
            return  # It was disconnected before.
        for follower in self._followers(generation) if rank == 0 else [rank]:
            link = self._link(generation.number, follower)
            link.ready.add(rank)
            link.told.discard(rank)
            peer = self._member_at(generation, link.other(rank))
            if not peer.is_alive:
                link.close(link.other(rank), resets=True)

    def _member_at(self, generation: Generation, rank: int) -> SimMember:
        if rank >= len(generation.members):
            return self.joiners[generation.number, rank]
        return self._by_name[generation.members[rank].incarnation]

    def _close_links(self, member: SimMember, *, resets: bool) -> None:
        for (number, rank), joiner in self.joiners.items():
            if joiner is member:
                self.links[number, rank].close(rank, resets=resets)
                self.links[number, rank].told.add(rank)
        for number, generation in self.generations.items():
            ranks = [rank for rank, one in enumerate(generation.members) if one.incarnation == member.name]
            is_later = member.is_alive and number > (member.core.generation.number if member.core.generation else 0)
            for rank in [] if is_later else ranks:
                for follower in self._followers(generation) if rank == 0 else [rank]:
                    link = self._link(number, follower)
                    if not (member.is_alive and member.core.generation is generation and self._is_working(member)):
                        link.close(rank, resets=resets)
                for (broken, _), reduction in self.reductions.items():
                    reduction.broken |= broken == number

    def _is_working(self, member: SimMember) -> bool:
        return member.core.phase in (Phase.FORMING, Phase.OPEN)

    def _send(self, member: SimMember, number: int, rank: int, message: Any) -> None:
        for link, own in self._ends[member.name]:
            if link.generation == number and link.other(own) == rank:
                link.send(own, message)

    def _received(self, member: SimMember, link: Link, rank: int) -> Callable[[], None]:
        def receive() -> None:
            message = link.queues[rank].popleft()
            if isinstance(message, Go):
                member.needed = message.needed
            self.post(
                member, events.MessageReceived(generation=link.generation, rank=link.other(rank), message=message)
            )

        return receive

    def _begin(self, member: SimMember, command: commands.Reduce) -> None:
        generation = self.generations[command.generation]
        reduction = self.reductions.setdefault(
            (command.generation, command.step), Reduction(size=len(generation.members))
        )
        rank = next(i for i, one in enumerate(generation.members) if one.incarnation == member.name)
        if not set(command.own) <= member.kept:
            raise AssertionError(f"{member.name} gives batches that it does not have")
        reduction.begun[rank] = tuple(command.own)
        if any(self._has_closed(generation, other) for other in range(len(generation.members))):
            reduction.broken = True
        member.reducing = command

    def _has_closed(self, generation: Generation, rank: int) -> bool:
        member = self._member_at(generation, rank)
        return not member.is_alive or member.core.generation is not generation or not self._is_working(member)

    def _reduced(self, member: SimMember, command: commands.Reduce, reduction: Reduction) -> None:
        member.reducing = None
        self.post(
            member,
            events.ReduceFinished(
                generation=command.generation,
                step=command.step,
                gradient=reduction.total(command.generation),
                size_bytes=1,
            ),
        )

    def _failed(self, member: SimMember, command: commands.Reduce) -> None:
        member.reducing = None
        self.post(member, events.ReduceFailed(generation=command.generation, step=command.step, reason="broken"))

    # --- master -------------------------------------------------------------------------------------------------------

    def _publish(self, member: SimMember) -> None:
        while len(member.published) > 1 and self.chance.random() < 0.5:
            member.published.popleft()  # A register only has its last value.
        generation = member.published.popleft()
        if self.chance.random() < 0.2:
            member.published.appendleft(generation)  # It is delivered at least once.
        self.post(member, events.GenerationFormed(generation=generation))

    def master_step(self) -> None:
        kind, member, left, has_model, is_near = self.log.popleft()
        present = self.generations[max(self.generations)] if self.generations else None
        names = {one.incarnation for one in present.members} if present else set()
        if kind == "gone":
            self._declare_gone(member)
            self._form(present, is_loss=member.incarnation in names)
        elif not (member.incarnation in names - self.gone and present and left < present.number):
            if member.incarnation in self.gone and not self._find(member).is_alive:
                return
            if member.incarnation in self.gone and member.incarnation not in names:
                self.gone.discard(member.incarnation)
            self.ready[member.incarnation] = member, has_model, is_near
            self._form(present, is_loss=False)

    def _declare_gone(self, member: RingMember) -> None:
        self.expected -= self.expected > 0
        self.gone.add(member.incarnation)
        self.ready.pop(member.incarnation, None)
        self._find(member).was_gone = True
        self._assign()

    def _find(self, member: RingMember) -> SimMember:
        return next(one for one in self.members if one.name == member.incarnation)

    def _form(self, present: Generation | None, *, is_loss: bool) -> None:
        before = present.members if present else ()
        kept = [one for one in before if one.incarnation not in self.gone]
        names = {one.incarnation for one in kept}
        joined = [one for name, one in self.ready.items() if name not in names and (one[2] or not kept)]
        joined.sort(key=lambda one: not one[1])
        waits = any(one.incarnation not in self.ready for one in kept)
        members = (*kept, *[one[0] for one in joined])
        if (waits and not is_loss and not joined) or len(members) < self.expected or not members:
            return
        self.expected = 0
        generation = Generation(number=(present.number if present else 0) + 1, members=members)
        self.generations[generation.number] = generation
        for one in members:
            self.ready.pop(one.incarnation, None)
        self._assign()
        for sim in self.members:
            sim.was_gone |= sim.identity not in members
            sim.published.append(generation)
