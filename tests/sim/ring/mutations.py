"""Mutations: each removes one rule of the ring's core, and random schedules have to show the damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import replaced

from elasticdl.ps.shard.group import Group
from elasticdl.worker.ring.core import commands, events, formation
from elasticdl.worker.ring.core import core as rules
from elasticdl.worker.ring.core.contributions import Contributions
from elasticdl.worker.ring.core.core import Phase, RingCore
from elasticdl.worker.ring.core.generations import rank_in
from elasticdl.worker.ring.core.joiners import Copy, Joiners
from elasticdl.worker.ring.core.messages import Near
from elasticdl.worker.ring.core.positions import Lack, Position, lack
from elasticdl.worker.ring.core.results import Results

Patch = Callable[[], AbstractContextManager[None]]
MUTATIONS: dict[str, Patch] = {}
"""Rule -> what removes it."""


def mutation(rule: str) -> Callable[[Callable[[], Iterator[None]]], Patch]:
    """Register what removes a rule."""

    def register(function: Callable[[], Iterator[None]]) -> Patch:
        MUTATIONS[rule] = contextmanager(function)
        return MUTATIONS[rule]

    return register


@contextmanager
def _of_the_open_generation(kind: type[Any]) -> Iterator[None]:
    """Events of a kind count as if the present generation had made them."""
    original = RingCore._on_event

    def on_event(self: Any, event: Any) -> None:
        number = self.generation.number if self.generation else 0
        original(self, replace(event, generation=number) if isinstance(event, kind) else event)

    with replaced(RingCore, "_on_event", on_event):
        yield


@mutation("a later lineage beats a higher step")
def lineage() -> Iterator[None]:
    with replaced(Position, "age", property(lambda self: (self.has_model, self.step))):
        yield


@mutation("a state is the same one after a generation has opened with it")
def names() -> Iterator[None]:
    with replaced(Position, "is_same", lambda self, other: self.age == other.age):
        yield


@mutation("what is computed and not committed survives a break")
def survivors_keep() -> Iterator[None]:
    def on_generation(self: Any) -> None:
        for forgotten in (self._own, self._offered, self._rounds):
            forgotten.clear()

    with replaced(Contributions, "on_generation", on_generation):
        yield


@mutation("batches are offered again in a new generation")
def offered_again() -> Iterator[None]:
    def opens(self: Any, generation: Any) -> None:
        self.phase = Phase.OPEN
        self.position = self.position.opened(generation.number)
        self._help_joiners()

    with replaced(RingCore, "_open", opens):
        yield


@mutation("offers of a former generation are void")
def void_offers() -> Iterator[None]:
    with replaced(Contributions, "on_generation", lambda self: None):
        yield


@mutation("a reduction counts only in its generation")
def void_reductions() -> Iterator[None]:
    with _of_the_open_generation(events.ReduceFinished):
        yield


@mutation("what comes from a former generation is void")
def void_losses() -> Iterator[None]:
    def is_present(self: Any, number: int) -> bool:
        return self.phase in (Phase.FORMING, Phase.OPEN)

    with replaced(RingCore, "_is_present", is_present):
        yield


@mutation("a member that is left out asks again")
def asks_again() -> Iterator[None]:
    original = RingCore._on_generation

    def on_generation(self: Any, generation: Any) -> None:
        if rank_in(generation, self._identity) is not None:
            original(self, generation)

    with replaced(RingCore, "_on_generation", on_generation):
        yield


@mutation("the loss of a member interrupts a round")
def interrupts() -> Iterator[None]:
    with replaced(rules, "keeps_all", lambda present, following: True):
        yield


@mutation("a break is reported")
def breaks_are_reported() -> Iterator[None]:
    original = RingCore._report

    def report(self: Any, reason: str, *, is_near: bool = False) -> None:
        if is_near or reason == "started" or "formed" in reason:
            original(self, reason, is_near=is_near)

    with replaced(RingCore, "_report", report):
        yield


@mutation("a batch counts only for the state that it was computed from")
def loads() -> Iterator[None]:
    original = RingCore._on_contributed

    def on_contributed(self: Any, event: events.Contributed) -> None:
        original(self, replace(event, loads=self._loads))

    with replaced(RingCore, "_on_contributed", on_contributed):
        yield


@mutation("a member that lacks a committed round gets its result")
def results_are_sent() -> Iterator[None]:
    def never(behind: Position, ahead: Position) -> Lack:
        return Lack.NOTHING if lack(behind, ahead) is Lack.RESULT else lack(behind, ahead)

    original = Results.since

    def since(self: Any, position: Position, present: Position) -> Any:
        return [] if original(self, position, present) else None

    with (
        replaced(formation, "lack", never),
        replaced(Results, "since", since),
        replaced(Position, "is_same", lambda self, other: self.lineage == other.lineage),
    ):
        yield


@mutation("all states are compared before a generation opens")
def waits_for_all() -> Iterator[None]:
    original = RingCore._on_generation

    def on_generation(self: Any, generation: Any) -> None:
        original(self, generation)
        if self.phase is Phase.FORMING and self.is_leader and self.position.has_model:
            self._open(self.generation)
            self._lead(self.generation)

    with replaced(RingCore, "_on_generation", on_generation):
        yield


@mutation("only the leader of a complete round lets it begin")
def complete_rounds() -> Iterator[None]:
    original = Contributions.go

    def go(self: Any, step: int) -> Any:
        known = self._rounds.get(step)
        if known is not None and self._offered.get(step):
            self._rounds[step] = tuple(key for key in known if key in self._offered[step])
        return original(self, step)

    with replaced(Contributions, "go", go):
        yield


@mutation("a round that begins elsewhere waits until this member has finished the one before")
def order_of_rounds() -> Iterator[None]:
    original = RingCore._on_go

    def on_go(self: Any, go: Any) -> None:
        if self._reducing is None:
            original(self, go)

    with replaced(RingCore, "_on_go", on_go):
        yield


@mutation("results are kept for a joiner")
def kept_for_joiners() -> Iterator[None]:
    with replaced(Joiners, "keep_from", property(lambda self: None)):
        yield


@mutation("a joiner asks to be a member only when it is near")
def joins_when_near() -> Iterator[None]:
    original = Joiners.serve

    def serve(self: Any, results: Any, present: Any) -> Iterator[Any]:
        for rank, joiner in self._joiners.items():
            if not joiner.is_told:
                joiner.is_told = True
                yield rank, Near()
        yield from original(self, results, present)

    with replaced(Joiners, "serve", serve):
        yield


@mutation("a joiner whose leader is lost connects again")
def connects_again() -> Iterator[None]:
    original = RingCore._join

    def join(self: Any, generation: Any, *, is_again: bool = False) -> None:
        if not is_again:
            original(self, generation)

    with replaced(RingCore, "_join", join):
        yield


@mutation("the loss of a joiner breaks no generation")
def joiners_are_no_members() -> Iterator[None]:
    original = RingCore._on_network

    def on_network(self: Any, event: Any) -> None:
        if isinstance(event, events.JoinerLost):
            self._abandon("a joiner was lost")
        else:
            original(self, event)

    with replaced(RingCore, "_on_network", on_network):
        yield


@mutation("a result follows the state that it was committed to")
def results_fit() -> Iterator[None]:
    def since(self: Any, position: Position, present: Position) -> Any:
        if position.is_same(present):
            return []
        return [self.last] if self.last is not None and position.has_model else None

    with replaced(Results, "since", since):
        yield


@mutation("checksums count only in their generation")
def void_checksums() -> Iterator[None]:
    with _of_the_open_generation(events.WeightsChecked):
        yield


@mutation("a member that catches up compares nothing")
def only_open_generations() -> Iterator[None]:
    original = RingCore._commit

    def commit(self: Any, result: Any, *, generation: int | None) -> None:
        original(self, result, generation=self.generation.number)

    with replaced(RingCore, "_commit", commit):
        yield


@mutation("all weights are compared at the end, also if the last round was committed in a former generation")
def last_check() -> Iterator[None]:
    original = RingCore._issue

    def issue(self: Any, command: Any) -> None:
        if not isinstance(command, commands.CheckLast):
            original(self, command)

    with replaced(RingCore, "_issue", issue):
        yield


@mutation("a member whose weights differ copies those of the others")
def copies_others() -> Iterator[None]:
    def on_difference(self: Any, step: int, tensor: int) -> None:
        self._issue(commands.TellDifference(step=step, tensor=tensor))

    with replaced(RingCore, "_on_difference", on_difference):
        yield


@mutation("results are kept from the oldest copy on that a joiner may get")
def kept_since_copies() -> Iterator[None]:
    original = Joiners.serve

    def serve(self: Any, results: Any, present: Any) -> Iterator[Any]:
        for rank, given in original(self, results, present):
            if isinstance(given, Copy):
                self._joiners[rank].needs = present.step
            yield rank, given

    with replaced(Joiners, "serve", serve):
        yield


@mutation("all members keep the results that joiners need")
def kept_by_all() -> Iterator[None]:
    with replaced(Joiners, "on_needed", lambda self, steps: None):
        yield


@mutation("results are kept for a joiner that changes to the generation that it is in")
def kept_between_generations() -> Iterator[None]:
    with replaced(Joiners, "on_lost", lambda self, rank: self._joiners.pop(rank, None)):
        yield


@mutation("a ps makes its update when the ring has committed the round")
def prepared() -> Iterator[None]:
    original = Group.apply

    def apply(self: Any, push: Any, staleness: int = 0) -> None:
        original(self, push, staleness)
        self.follow_ring()

    with replaced(Group, "apply", apply):
        yield


@mutation("a pull for a batch that a ps has says nothing about the ring")
def repeated_pull() -> Iterator[None]:
    original = Group.follow_ring

    with replaced(Group, "follow_ring", lambda self, batch=None: original(self)):
        yield
