"""One member's core, by scenarios: what it does when something comes at another time than usual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, NO_FLOATS
from elasticdl.worker.ring.core import Phase, RingCore, commands, events
from elasticdl.worker.ring.core.generations import ring_order
from elasticdl.worker.ring.core.messages import (
    Entry,
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
from elasticdl.worker.ring.ports import BatchFacts, Generation

C = TypeVar("C", bound=commands.RingCommand)
ROUND = ((TaskId(0), 0), (TaskId(1), 0))


def member(number: int, node: str = "") -> RingMember:
    worker, incarnation = PodName(f"worker-{number}"), Incarnation(f"i{number}")
    return RingMember(worker=worker, incarnation=incarnation, address=f"host:{number}", node=node)


def generation(number: int, *members: int) -> Generation:
    return Generation(number=number, members=tuple(map(member, members)))


def facts(task: int, batch: int = 0, *, is_empty: bool = False) -> BatchFacts:
    return BatchFacts(
        task=TaskId(task),
        batch=batch,
        batches=3,
        records=2,
        checksum=0,
        is_empty=is_empty,
        statistics=NO_FLOATS,
        metric_states=NO_DOUBLES,
    )


class Driver:
    """A core, and what it issued last."""

    def __init__(self, number: int, *, step: int = 0, has_model: bool = False, **options: int) -> None:
        self.core = RingCore(member(number).worker, member(number).incarnation, **options)
        self.issued: list[commands.RingCommand] = []
        self.post(events.Started(step=step, has_model=has_model))

    def post(self, event: events.RingEvent) -> None:
        self.issued = list(self.core.handle(event, 0.0))
        self.core.check()

    def form(self, formed: Generation) -> None:
        self.post(events.GenerationFormed(generation=formed))

    def receive(self, rank: int, message: Message, *, number: int = 1) -> None:
        self.post(events.MessageReceived(generation=number, rank=rank, message=message))

    def contribute(self, task: int, step: int = 0, *, loads: int = 0) -> None:
        keys = tuple([(key[0], step) for key in ROUND])
        self.post(events.Contributed(step=step, loads=loads, round=keys, facts=facts(task, step)))

    def only(self, kind: type[C]) -> C:
        """The one command of a kind that was issued last."""
        found = [command for command in self.issued if isinstance(command, kind)]
        assert len(found) == 1, self.issued
        return found[0]

    def has(self, kind: type[commands.RingCommand]) -> bool:
        return any(isinstance(command, kind) for command in self.issued)

    @property
    def sent(self) -> list[tuple[int, Message]]:
        return [(command.rank, command.message) for command in self.issued if isinstance(command, commands.Send)]


def position(lineage: int, step: int, *, has_result: bool = False) -> Position:
    return Position(lineages=(lineage,), step=step, has_model=True, has_result=has_result)


def open_leader(members: int = 2, **options: int) -> Driver:
    """A leader with a model whose generation 1 is open."""
    leader = Driver(0, has_model=True, **options)
    leader.form(generation(1, *range(members)))
    for rank in range(1, members):
        leader.receive(rank, Hello(position=Position(has_model=True)))
    assert leader.core.phase is Phase.OPEN
    return leader


def open_follower() -> Driver:
    follower = Driver(1, has_model=True)
    follower.form(generation(1, 0, 1))
    follower.post(events.LeaderReached(generation=1))
    follower.receive(0, Opened(position=Position(has_model=True)))
    assert follower.core.phase is Phase.OPEN
    return follower


def go(step: int, ranks: tuple[int, int] = (0, 1)) -> Go:
    return Go(step=step, entries=tuple([Entry(rank=rank, facts=facts(task, step)) for task, rank in enumerate(ranks)]))


def test_a_member_alone_commits_what_it_computes() -> None:
    alone = Driver(0)
    assert alone.only(commands.ReportReady).left == 0
    alone.form(generation(1, 0))
    assert alone.has(commands.Lead)
    alone.post(events.ModelReady(step=5))
    assert alone.core.phase is Phase.OPEN
    alone.contribute(0, 5)
    assert not alone.has(commands.Reduce)
    alone.contribute(1, 5)
    assert alone.only(commands.Reduce).own == [(0, 5), (1, 5)]
    alone.post(events.ReduceFinished(generation=1, step=5, gradient="sum"))
    assert alone.only(commands.Apply).gradient == "sum"
    assert alone.core.position.step == 6


def test_the_leader_lets_a_complete_round_begin() -> None:
    leader = open_leader()
    leader.contribute(1)
    leader.receive(1, Offer(step=0, round=ROUND, facts=facts(0)))
    assert leader.sent == [(1, go(0, (1, 0)))]
    assert leader.only(commands.Reduce).own == [(1, 0)]


def test_the_first_offer_of_a_batch_counts() -> None:
    leader = open_leader()
    leader.receive(1, Offer(step=0, round=ROUND, facts=facts(0)))
    leader.contribute(0)
    leader.contribute(1)
    assert leader.only(commands.Reduce).own == [(1, 0)]


def test_a_round_of_empty_batches_is_a_meeting_without_a_sum() -> None:
    leader = open_leader()
    for task in (0, 1):
        leader.receive(1, Offer(step=0, round=ROUND, facts=facts(task, is_empty=True)))
    assert not leader.only(commands.Reduce).has_gradient


def test_a_follower_begins_the_next_round_once_it_has_finished_this_one() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.receive(0, go(1, (0, 0)))
    assert not follower.has(commands.Reduce)
    follower.post(events.ReduceFinished(generation=1, step=0, gradient=None))
    assert follower.only(commands.Reduce).step == 1


def test_a_break_is_told_at_once_and_nothing_computed_is_lost() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.post(events.ReduceFailed(generation=1, step=0, reason="reset"))
    assert follower.only(commands.Disconnect).generation == 1
    assert follower.only(commands.ReportReady) == commands.ReportReady(left=1, step=0, has_model=True, reason="reset")
    follower.form(generation(2, 1))
    assert follower.core.phase is Phase.OPEN
    follower.contribute(0)
    assert follower.only(commands.Reduce).own == [(0, 0), (1, 0)]


def test_a_sum_that_comes_after_the_break_is_dropped() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.post(events.PeerLost(generation=1, reason="reset"))
    follower.post(events.ReduceFinished(generation=1, step=0, gradient="sum"))
    assert follower.issued == []
    assert follower.core.position.step == 0


def test_what_a_former_generation_sends_is_void() -> None:
    follower = open_follower()
    follower.form(generation(3, 0, 1))
    follower.form(generation(2, 0))
    follower.receive(0, go(0), number=1)
    follower.post(events.PeerLost(generation=1, reason="reset"))
    assert follower.issued == []
    assert follower.core.phase is Phase.FORMING


def test_a_joiner_waits_for_the_end_of_the_round() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.form(generation(2, 0, 1, 2))
    assert follower.issued == []
    follower.post(events.ReduceFinished(generation=1, step=0, gradient=None))
    assert follower.has(commands.Apply)
    assert follower.only(commands.Connect).generation.number == 2


def test_the_loss_of_a_member_interrupts_the_round() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.form(generation(2, 1, 2))
    assert follower.only(commands.Disconnect).generation == 1


def test_a_member_that_is_left_out_asks_again() -> None:
    follower = open_follower()
    follower.form(generation(2, 0))
    assert follower.only(commands.ReportReady).left == 1
    follower.form(generation(3, 0))
    assert follower.only(commands.ReportReady).left == 1


def test_the_leader_sends_the_result_to_a_member_that_lacks_it() -> None:
    leader = open_leader(3)
    leader.contribute(0)
    leader.contribute(1)
    leader.post(events.ReduceFinished(generation=1, step=0, gradient="sum"))
    leader.post(events.PeerLost(generation=1, reason="reset"))
    leader.form(generation(2, 0, 1))
    leader.receive(1, Hello(position=position(1, 0)), number=2)
    assert leader.only(commands.SendResult).result.gradient == "sum"
    leader.receive(1, Hello(position=position(1, 1, has_result=True)), number=2)
    assert leader.sent == [(1, Opened(position=position(1, 1, has_result=True)))]


def test_a_leader_that_lacks_a_result_asks_for_it() -> None:
    leader = open_leader()
    leader.contribute(0)
    leader.post(events.PeerLost(generation=1, reason="reset"))
    leader.form(generation(2, 0, 1))
    leader.receive(1, Hello(position=position(1, 1, has_result=True)), number=2)
    assert leader.sent == [(1, Want(kind=Kind.RESULT))]
    result = Result(before=position(1, 0), batches=(facts(0), facts(1)), gradient="sum")
    leader.receive(1, result, number=2)
    assert leader.only(commands.Apply).gradient == "sum"
    assert leader.core.phase is Phase.OPEN
    leader.contribute(1)  # Its round is committed.
    assert leader.issued == []


def test_a_follower_that_has_the_result_gives_it() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, go(0))
    follower.post(events.ReduceFinished(generation=1, step=0, gradient="sum"))
    follower.post(events.PeerLost(generation=1, reason="reset"))
    follower.form(generation(2, 0, 1))
    follower.receive(0, Want(kind=Kind.RESULT), number=2)
    assert follower.only(commands.SendResult).result.gradient == "sum"


def test_a_member_says_where_it_is_once_it_has_loaded_a_copy() -> None:
    follower = Driver(1)
    follower.form(generation(1, 0, 1))
    follower.post(events.LeaderReached(generation=1))
    assert [rank for rank, _ in follower.sent] == [0]
    follower.receive(0, State(position=position(1, 7), parts="parts"))
    assert follower.only(commands.Load).state.parts == "parts"
    assert follower.sent == []
    follower.post(events.StateLoaded(step=7))
    assert follower.sent == [(0, Hello(position=position(1, 7)))]


def test_a_copy_that_is_loaded_when_the_generation_breaks_counts_in_the_next_one() -> None:
    follower = Driver(1)
    follower.form(generation(1, 0, 1))
    follower.post(events.LeaderReached(generation=1))
    follower.receive(0, State(position=position(1, 7), parts="parts"))
    follower.post(events.PeerLost(generation=1, reason="reset"))
    follower.form(generation(2, 1))
    assert not follower.has(commands.Lead)
    follower.post(events.StateLoaded(step=7))
    assert follower.core.phase is Phase.OPEN


def test_a_batch_of_a_state_that_was_replaced_is_dropped() -> None:
    follower = Driver(1, step=3, has_model=True)
    follower.form(generation(1, 0, 1))
    follower.receive(0, State(position=position(1, 3), parts="parts"))
    follower.post(events.StateLoaded(step=3))
    follower.receive(0, Opened(position=position(1, 3)))
    follower.contribute(0, 3, loads=0)
    assert follower.issued == []
    follower.contribute(0, 3, loads=1)
    assert len(follower.sent) == 1


def test_a_leader_that_restores_a_model_takes_a_newer_one_instead() -> None:
    leader = Driver(0)
    leader.form(generation(1, 0))
    assert leader.has(commands.Lead)
    leader.form(generation(2, 0, 1))
    leader.receive(1, Hello(position=position(1, 4)), number=2)
    assert leader.sent == [(1, Want(kind=Kind.STATE))]
    leader.receive(1, State(position=position(1, 4), parts="parts"), number=2)
    assert [type(command) for command in leader.issued] == [commands.Follow, commands.Load]
    leader.post(events.ModelReady(step=0))
    leader.post(events.StateLoaded(step=4))
    assert leader.only(commands.Lead).generation.number == 2
    assert leader.core.position.step == 4


@pytest.mark.parametrize("is_reducing", [False, True])
def test_a_member_leaves_between_two_rounds(is_reducing: bool) -> None:
    follower = open_follower()
    follower.contribute(1)
    if is_reducing:
        follower.receive(0, go(0))
        follower.post(events.LeaveRequested())
        assert follower.issued == []
        follower.post(events.ReduceFinished(generation=1, step=0, gradient=None))
    else:
        follower.post(events.LeaveRequested())
    assert follower.has(commands.Disconnect)
    assert follower.has(commands.Left)
    follower.form(generation(2, 0, 1))
    assert follower.issued == []


@pytest.mark.parametrize("is_own", [False, True])
def test_ledgers_that_differ_break_the_generation(is_own: bool) -> None:
    leader = open_leader()
    leader.receive(1, Offer(step=0, round=(*ROUND, ROUND[0]), facts=facts(0)))
    if is_own:
        leader.contribute(0)
    else:
        leader.receive(1, Offer(step=0, round=ROUND, facts=facts(0)))
    assert "different batches" in leader.only(commands.ReportReady).reason


def test_what_a_state_lacks() -> None:
    assert lack(position(2, 5), position(2, 6, has_result=True)) is Lack.RESULT
    assert lack(position(2, 5), position(2, 6)) is Lack.STATE
    assert lack(position(2, 5), position(2, 7, has_result=True)) is Lack.STATE
    assert lack(position(1, 5), position(2, 6, has_result=True)) is Lack.STATE
    assert lack(Position(), position(2, 6, has_result=True)) is Lack.STATE
    # A member that was frozen has committed step 6 alone; the others have committed another step 6 since.
    assert lack(position(1, 6), position(2, 6)) is Lack.STATE
    # A member that missed that generation 2 opened has the same state.
    assert lack(position(1, 5), position(1, 5).opened(2)) is Lack.NOTHING
    assert lack(position(1, 6), position(1, 5).opened(2).advanced()) is Lack.STATE


def test_the_newest_state_is_that_of_the_last_lineage() -> None:
    positions = {0: Position(), 1: position(1, 9), 2: position(2, 8), 3: position(2, 8, has_result=True)}
    assert donor(positions) == 3


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ("aaaa", [0, 1, 2, 3]),
        ("abab", [0, 2, 1, 3]),
        ("abcba", [0, 4, 1, 3, 2]),
        (("", "", ""), [0, 1, 2]),  # Members of a job on one machine.
    ],
)
def test_members_on_one_node_are_neighbours(nodes: Sequence[str], order: list[int]) -> None:
    members = tuple([member(number, node) for number, node in enumerate(nodes)])
    assert ring_order(Generation(number=1, members=members)) == order
    in_order = [nodes[rank] for rank in order]
    crossing = sum(node != in_order[place - 1] for place, node in enumerate(in_order))
    assert crossing == (len(set(nodes)) if len(set(nodes)) > 1 else 0)
