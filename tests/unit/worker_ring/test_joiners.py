"""One member's core, by scenarios: processes that want to be members, and members whose weights differ."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.worker_ring.test_core import (
    ROUND,
    Driver,
    facts,
    generation,
    go,
    open_follower,
    open_leader,
    position,
)

from elasticdl.worker.ring.core import Phase, commands, events
from elasticdl.worker.ring.core.joiners import AWAY_ROUNDS
from elasticdl.worker.ring.core.messages import Differs, Go, Hello, Near, Offer, Opened, Result, State, Weights
from elasticdl.worker.ring.core.positions import Position


def commit(leader: Driver, step: int) -> None:
    """A leader alone commits a round."""
    leader.contribute(0, step)
    leader.contribute(1, step)
    leader.post(events.ReduceFinished(generation=1, step=step, gradient=f"sum {step}", size_bytes=1))


def test_a_leader_brings_a_joiner_up_to_date_while_rounds_are_committed() -> None:
    leader = open_leader(members=1)
    leader.receive(1, Hello(position=Position()))
    assert leader.only(commands.SendState).position.step == 0
    for step in range(3):
        commit(leader, step)
        assert not leader.has(commands.SendResult)
    leader.receive(1, Hello(position=position(1, 0)))
    assert leader.only(commands.SendResult).result.step == 0
    leader.receive(1, Hello(position=position(1, 1)))
    assert leader.only(commands.SendResult).result.step == 1
    assert leader.sent == []
    leader.receive(1, Hello(position=position(1, 2)))
    assert leader.sent == [(1, Near())]
    assert leader.only(commands.SendResult).result.step == 2
    leader.receive(1, Hello(position=position(1, 3)))
    assert leader.issued == []
    commit(leader, 3)
    assert leader.only(commands.SendResult).result.step == 3
    assert leader.only(commands.Apply).unneeded == []  # Its result is on its way.


def test_joiners_share_a_copy_that_is_being_sent() -> None:
    leader = open_leader(members=1)
    leader.receive(1, Hello(position=Position()))
    assert leader.only(commands.SendState).since == 0
    commit(leader, 0)
    commit(leader, 1)
    leader.receive(2, Hello(position=Position()))
    assert leader.only(commands.SendState).position.step == 2
    leader.receive(1, Hello(position=position(1, 0)))
    leader.receive(3, Hello(position=Position()))
    third = leader.only(commands.SendState)
    assert (third.position.step, third.since) == (2, 0)
    leader.receive(2, Hello(position=position(1, 0)))  # It got the copy of the first one.
    assert leader.only(commands.SendResult).result.step == 0


def test_a_joiner_does_not_share_a_copy_whose_results_are_gone() -> None:
    leader = open_leader(members=1, kept_bytes_max=2)
    leader.receive(1, Hello(position=Position()))
    for step in range(4):
        commit(leader, step)
    leader.receive(2, Hello(position=Position()))
    assert leader.only(commands.SendState).since == 2


def test_sums_are_used_again_unless_a_joiner_may_read_them() -> None:
    leader = open_leader(members=1)
    commit(leader, 0)
    commit(leader, 1)
    assert leader.only(commands.Apply).unneeded == ["sum 0"]
    leader.receive(1, Hello(position=position(1, 1)))
    assert leader.only(commands.SendResult).result.gradient == "sum 1"
    leader.receive(1, Hello(position=position(1, 2)))
    commit(leader, 2)
    assert leader.only(commands.Apply).unneeded == []
    leader.post(events.JoinerLost(generation=1, rank=1))  # It was near, so it may be a member of the next generation.
    commit(leader, 3)
    assert leader.only(commands.Apply).unneeded == []
    for step in range(4, AWAY_ROUNDS + 3):
        commit(leader, step)
    assert leader.only(commands.Apply).unneeded == []
    commit(leader, AWAY_ROUNDS + 3)
    commit(leader, AWAY_ROUNDS + 4)
    assert leader.only(commands.Apply).unneeded[-1] == f"sum {AWAY_ROUNDS + 3}"


def test_a_joiner_that_falls_too_far_behind_is_copied_to_in_the_next_generation() -> None:
    leader = open_leader(members=1, kept_bytes_max=2)
    leader.receive(1, Hello(position=Position()))
    for step in range(4):
        commit(leader, step)
    leader.receive(1, Hello(position=position(1, 0)))
    assert leader.sent == [(1, Near())]
    leader.form(generation(2, 0, 1))
    leader.receive(1, Hello(position=position(1, 0)), number=2)
    assert leader.only(commands.SendState).position.step == 4


def test_what_a_joiner_needs_is_kept_when_another_member_leaves() -> None:
    leader = open_leader(members=2)
    leader.receive(2, Hello(position=position(1, 0)))
    commit(leader, 0)
    leader.form(generation(2, 0))
    leader.receive(1, Hello(position=position(1, 0)), number=2)
    assert leader.only(commands.SendResult).result.step == 0


def test_a_follower_that_leads_after_the_death_of_the_leader_has_the_results_that_a_joiner_needs() -> None:
    follower = open_follower()

    def commit_round(step: int, needed: tuple[int, ...]) -> None:
        follower.contribute(1, step)
        follower.receive(0, replace(go(step), needed=needed))
        follower.post(events.ReduceFinished(generation=1, step=step, gradient=f"sum {step}", size_bytes=1))

    commit_round(0, ())
    commit_round(1, (1,))
    assert follower.only(commands.Apply).unneeded == ["sum 0"]
    commit_round(2, (1,))
    assert follower.only(commands.Apply).unneeded == []
    follower.form(generation(2, 1))
    assert follower.core.phase is Phase.OPEN
    follower.receive(1, Hello(position=position(1, 1)), number=2)
    assert follower.only(commands.SendResult).result.gradient == "sum 1"
    follower.receive(1, Hello(position=position(1, 2)), number=2)
    assert follower.only(commands.SendResult).result.gradient == "sum 2"


def test_a_follower_drops_results_that_no_joiner_needs_any_more() -> None:
    follower = open_follower()
    for step, needed in enumerate([(0,), (0,), ()]):
        follower.contribute(1, step)
        follower.receive(0, replace(go(step), needed=needed))
        follower.post(events.ReduceFinished(generation=1, step=step, gradient=f"sum {step}", size_bytes=1))
    assert follower.only(commands.Apply).unneeded == ["sum 0", "sum 1"]


def test_the_leader_tells_with_each_round_what_its_joiners_need() -> None:
    leader = open_leader(members=2)
    leader.receive(2, Hello(position=Position()))
    leader.contribute(0)
    leader.receive(1, Offer(step=0, round=ROUND, facts=facts(1)))
    ((rank, told),) = leader.sent
    assert isinstance(told, Go)
    assert (rank, told.needed) == (1, (0,))


def test_a_joiner_follows_the_leader_and_asks_to_be_a_member_when_it_is_near() -> None:
    joiner = Driver(1)
    joiner.form(generation(3, 0))
    assert joiner.core.phase is Phase.JOINING
    assert joiner.only(commands.Connect).rank is None
    joiner.post(events.LeaderReached(generation=3))
    assert joiner.sent == [(0, Hello(position=Position()))]
    joiner.receive(0, State(position=position(3, 7), parts="parts"), number=3)
    joiner.post(events.StateLoaded(step=7))
    before = replace(position(3, 7), lineages=(3, 4))  # A generation has opened without a round between.
    joiner.receive(0, Result(before=before, batches=(facts(0),), gradient="sum"), number=3)
    assert joiner.only(commands.Apply).gradient == "sum"
    ((_, hello),) = joiner.sent
    assert isinstance(hello, Hello)
    assert (hello.position.lineage, hello.position.step) == (4, 8)
    joiner.receive(0, Near(), number=3)
    assert joiner.only(commands.ReportReady).is_near
    assert joiner.only(commands.ReportReady).left == 0
    joiner.form(generation(5, 0, 1))
    assert joiner.only(commands.Connect).rank == 1


def test_a_joiner_that_loses_the_leader_tries_again_until_it_hears_of_another_generation() -> None:
    joiner = Driver(1)
    joiner.form(generation(3, 0))
    joiner.post(events.PeerLost(generation=3, reason="reset"))
    assert joiner.only(commands.Connect).is_again
    joiner.form(generation(4, 2))
    assert joiner.only(commands.Connect) == commands.Connect(generation=generation(4, 2), rank=None)
    joiner.post(events.LeaveRequested())
    assert joiner.has(commands.Left)


def test_the_leader_tells_the_member_whose_weights_differ() -> None:
    leader = open_leader(members=3)
    leader.post(events.WeightsChecked(generation=1, step=8, checksums=(1, 2, 3)))
    assert leader.core.comparison.is_waiting
    leader.receive(2, Weights(step=8, checksums=(1, 2, 3)))
    leader.receive(1, Weights(step=8, checksums=(1, 7, 7)))
    assert leader.sent == [(1, Differs(step=8, tensor=1))]
    assert leader.core.phase is Phase.OPEN
    assert not leader.core.comparison.is_waiting


def test_a_leader_whose_weights_differ_from_those_of_two_others_copies_theirs() -> None:
    leader = open_leader(members=3)
    for rank in (1, 2):
        leader.receive(rank, Weights(step=8, checksums=(1, 2)))
    leader.post(events.WeightsChecked(generation=1, step=8, checksums=(1, 3)))
    assert leader.only(commands.TellDifference) == commands.TellDifference(step=8, tensor=1)
    assert not leader.only(commands.ReportReady).has_model


def test_of_two_members_the_leader_is_believed() -> None:
    leader = open_leader(members=2)
    leader.post(events.WeightsChecked(generation=1, step=8, checksums=(1, 3)))
    leader.receive(1, Weights(step=8, checksums=(1, 2)))
    assert leader.sent == [(1, Differs(step=8, tensor=1))]


def test_a_member_whose_weights_differ_copies_the_state_and_computes_its_batches_again() -> None:
    follower = open_follower()
    follower.contribute(1)
    follower.receive(0, Differs(step=8, tensor=1))
    assert follower.has(commands.TellDifference)
    assert "after step 8" in follower.only(commands.ReportReady).reason
    follower.form(generation(2, 0, 1))
    follower.post(events.LeaderReached(generation=2))
    assert follower.sent == [(0, Hello(position=Position()))]
    follower.receive(0, State(position=position(1, 1), parts="parts"), number=2)
    follower.post(events.StateLoaded(step=1))
    follower.receive(0, Opened(position=position(1, 1)), number=2)
    assert follower.sent == []  # Nothing that was computed from wrong weights is offered.


def test_checksums_of_a_former_generation_are_not_waited_for() -> None:
    leader = open_leader(members=3)
    leader.post(events.WeightsChecked(generation=1, step=8, checksums=(1,)))
    leader.form(generation(2, 0, 1))
    assert not leader.core.comparison.is_waiting


def test_weights_that_were_checked_in_a_former_generation_are_not_compared_in_the_next_one() -> None:
    leader = open_leader(members=2)
    leader.form(generation(2, 0))
    assert leader.core.phase is Phase.OPEN
    leader.post(events.WeightsChecked(generation=1, step=8, checksums=(1,)))
    assert not leader.core.comparison.is_waiting


def test_the_weights_of_a_member_that_catches_up_are_not_compared() -> None:
    leader = open_leader(members=1)
    commit(leader, 0)
    assert leader.only(commands.Apply).generation == 1
    follower = Driver(1)
    follower.form(generation(1, 0, 1))
    follower.post(events.LeaderReached(generation=1))
    follower.receive(0, State(position=position(0, 0), parts="parts"))
    follower.post(events.StateLoaded(step=0))
    follower.receive(0, Result(before=position(0, 0), batches=(facts(0),), gradient="sum"))
    assert follower.only(commands.Apply).generation is None


def test_results_stay_for_a_near_joiner_that_is_lost_while_another_one_is_connected() -> None:
    leader = open_leader(members=1)
    commit(leader, 0)
    commit(leader, 1)
    for rank in (1, 2):
        leader.receive(rank, Hello(position=position(1, 1)))
        leader.receive(rank, Hello(position=position(1, 2)))
    leader.post(events.JoinerLost(generation=1, rank=1))
    commit(leader, 2)
    leader.receive(2, Hello(position=position(1, 3)))
    commit(leader, 3)
    leader.receive(2, Hello(position=position(1, 4)))
    commit(leader, 4)
    leader.receive(1, Hello(position=position(1, 2)))
    assert leader.only(commands.SendResult).result.step == 2
