"""Jobs with AllreduceStrategy: which generations of the ring the master forms, and what follows for ps-0."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.master.driver import PS, Driver, job_spec, whole

from elasticdl.master.core.invariants import check
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.spec import Strategy
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import FormRing, StartPod, StopPod, TakeSnapshot
from elasticdl.shared.messages.events import ExitCause, PsStarted, RingMemberReady
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.views import core_snapshot
from elasticdl.views.event_messages import EventMessages
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.report import build

RING = job_spec(workers=3, strategy=Strategy.ALLREDUCE, synchronous=True, grads_to_wait=3)


WORKERS = st.sampled_from(["worker-0", "worker-1", "worker-2"])


class Ring(Driver):
    """A job with a ring. Workers get their names from the order in which they are started."""

    def start(self, worker: str) -> None:
        """A process of a worker starts, and asks to be a member. It has copied the model, if there are others."""
        self.begin(worker)
        if worker not in self.members:
            self.ready(worker, has_model=True, is_near=True)

    def begin(self, worker: str) -> None:
        """A process of a worker starts, and has no model."""
        self._starts[PodName(worker)] = self._starts.get(PodName(worker), 0) + 1
        started = events.PodStarted(pod=PodName(worker), service=Service.WORKER, instance=self.instance(worker))
        self.feed_from_launcher(started)
        self.ready(worker)

    def ready(
        self,
        worker: str,
        *,
        left: int = 0,
        step: int = 0,
        has_model: bool = False,
        is_near: bool = False,
        reason: str = "",
        node: str = "",
    ) -> None:
        """A worker asks to be a member of the next generation."""
        event = RingMemberReady(
            address=f"{worker}:1",
            left=left,
            step=step,
            has_model=has_model,
            is_near=is_near,
            reason=reason or "started",
            node=node,
        )
        self.feed(event, Service.WORKER, worker, self.incarnation(worker))

    def serve(self, ledger: LedgerRecord | None = None) -> None:
        """The leader of the present generation serves its replica as ps-0."""
        leader = self.state.ring.members[0].worker
        incarnation = f"ps-0 in {self.state.ring.generation}"
        groups = self.groups(PS, ledger or LedgerRecord())
        started = PsStarted(address="l:1", ledgers=groups, claim=self.state.ring.generation)
        self.feed(started, Service.PS, PS, incarnation, self.incarnation(leader))

    @property
    def members(self) -> list[str]:
        """The members of the present generation, by seniority."""
        return [one.worker for one in self.state.ring.members]


@pytest.fixture
def ring() -> Ring:
    return three_workers()


def three_workers() -> Ring:
    """A ring of three workers that train; worker-1 leads."""
    driver = Ring(RING)
    for worker in ("worker-1", "worker-0", "worker-2"):
        driver.start(worker)
        if worker == "worker-1":
            driver.serve()
    driver.serve()
    for worker in ("worker-0", "worker-1", "worker-2"):
        driver.feed(events.WorkerStarted(), Service.WORKER, worker, driver.incarnation(worker))
    driver.commands.clear()
    assert driver.members == ["worker-1", "worker-0", "worker-2"]
    return driver


def test_no_process_of_a_ps_is_started_and_the_first_worker_that_is_ready_leads() -> None:
    driver = Ring(RING)
    assert {command.pod for command in driver.take(StartPod)} == {"worker-0", "worker-1", "worker-2"}
    driver.start("worker-2")
    (formed,) = driver.take(FormRing)
    assert (formed.generation, [one.worker for one in formed.members]) == (1, ["worker-2"])
    assert driver.state.pods[PS].instance == driver.instance("worker-2")
    assert driver.state.pods[PS].phase is PodPhase.STARTING


def test_others_join_once_the_leader_has_a_model() -> None:
    driver = Ring(RING)
    driver.start("worker-2")
    driver.start("worker-0")
    assert driver.members == ["worker-2"]
    driver.serve()
    assert driver.members == ["worker-2", "worker-0"]
    assert driver.state.ring.generation == 2


def test_a_worker_is_a_member_once_it_is_near(ring: Ring) -> None:
    ring.exit_pod("worker-2", ExitCause.PREEMPTED)
    ring.begin("worker-2")
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert ring.members == ["worker-1"]
    generation = ring.state.ring.generation
    ring.ready("worker-2", has_model=True, step=3)
    assert ring.state.ring.generation == generation
    ring.ready("worker-2", has_model=True, step=4, is_near=True)
    assert ring.members == ["worker-1", "worker-2"]


def test_a_generation_says_on_which_node_each_member_runs(ring: Ring) -> None:
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    ring.begin("worker-0")
    ring.ready("worker-0", has_model=True, is_near=True, node="node-b")
    assert ring.members == ["worker-1", "worker-2", "worker-0"]
    assert [one.node for one in ring.state.ring.members] == ["", "", "node-b"]
    ring.exit_pod("worker-2", ExitCause.PREEMPTED)
    assert [one.node for one in ring.state.ring.members] == ["", "node-b"]


def test_a_worker_whose_copy_is_not_complete_is_a_member_when_no_other_one_is_left() -> None:
    driver = Ring(RING)
    driver.start("worker-1")
    driver.serve()
    driver.begin("worker-0")
    assert driver.members == ["worker-1"]
    driver.exit_pod("worker-1", ExitCause.PREEMPTED)
    assert driver.members == ["worker-0"]


def test_the_report_names_the_generations_and_the_members(ring: Ring) -> None:
    found = build(ring.state)["ring"]
    assert found == {"generations": ring.state.ring.generation, "members": ["worker-1", "worker-0", "worker-2"]}


def test_a_dead_member_ends_the_generation_at_once(ring: Ring) -> None:
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    (formed,) = ring.take(FormRing)
    assert [one.worker for one in formed.members] == ["worker-1", "worker-2"]
    assert formed.reason == "worker-0 left"
    assert ring.state.pods[PS].phase is PodPhase.RUNNING  # The leader is the same.


def test_the_next_member_leads_after_the_leader_and_its_ledger_decides(ring: Ring) -> None:
    ring.exit_pod("worker-1", ExitCause.PREEMPTED)
    assert ring.members == ["worker-0", "worker-2"]
    served = ring.state.pods[PS]
    assert (served.phase, served.instance) == (PodPhase.STARTING, ring.instance("worker-0"))
    assert ring.state.training is not None
    assert not ring.state.training.credits[PS].incarnation
    ring.serve(LedgerRecord(finished=((0, 2),)))
    assert ring.state.training.credited_to(PS).first_missing(0) == 2


def test_a_broken_connection_ends_the_generation_once_every_member_has_said_so(ring: Ring) -> None:
    generation = ring.state.ring.generation
    ring.ready("worker-2", left=generation, step=5, has_model=True, reason="worker-0 closed its connection")
    ring.ready("worker-1", left=generation, step=5, has_model=True, reason="worker-2 closed its connection")
    assert not ring.take(FormRing)
    ring.ready("worker-0", left=generation, step=4, has_model=True, reason="worker-1 closed its connection")
    (formed,) = ring.take(FormRing)
    assert [one.worker for one in formed.members] == ["worker-1", "worker-0", "worker-2"]


def test_a_member_that_has_no_model_yet_does_not_lead_one_that_has(ring: Ring) -> None:
    generation = ring.state.ring.generation
    ring.exit_pod("worker-1", ExitCause.PREEMPTED)
    assert ring.members[0] == "worker-0"
    ring.ready("worker-0", left=generation + 1, has_model=False, reason="worker-2 closed its connection")
    ring.ready("worker-2", left=generation + 1, step=3, has_model=True, reason="worker-0 closed its connection")
    assert ring.members == ["worker-2", "worker-0"]


def test_a_report_about_an_earlier_generation_changes_nothing(ring: Ring) -> None:
    ring.ready("worker-0", left=ring.state.ring.generation - 1, has_model=True)
    assert not ring.take(FormRing)
    assert not ring.state.ring.ready


def test_a_worker_that_stops_is_no_member_and_its_successor_joins(ring: Ring) -> None:
    ring.feed(events.WorkerStopped(reason="SIGTERM"), Service.WORKER, "worker-2", ring.incarnation("worker-2"))
    assert ring.members == ["worker-1", "worker-0"]
    ring.exit_pod("worker-2", ExitCause.PREEMPTED)
    ring.serve()
    ring.start("worker-2")
    assert ring.members == ["worker-1", "worker-0", "worker-2"]


def test_a_silent_member_is_left_out(ring: Ring) -> None:
    missed = events.HeartbeatsMissed(
        pod=PodName("worker-0"), incarnation=ring.state.pods[PodName("worker-0")].incarnation, silent_s=9.0
    )
    ring.feed(missed, Service.MASTER, "master")
    assert ring.members == ["worker-1", "worker-2"]
    assert [command.pod for command in ring.take(StopPod)] == ["worker-0"]


def test_a_member_that_is_silent_before_it_has_a_model_is_left_out() -> None:
    driver = Ring(RING)
    for worker in ("worker-1", "worker-0"):
        driver.start(worker)
        driver.serve()
    silent = PodName("worker-0")
    incarnation = Incarnation(driver.incarnation(silent))
    assert (silent, incarnation) in driver.state.watched
    driver.feed(events.HeartbeatsMissed(pod=silent, incarnation=incarnation, silent_s=9.0), Service.MASTER, "master")
    assert driver.members == ["worker-1"]
    assert (silent, incarnation) not in driver.state.watched


def test_events_of_a_former_leader_do_not_count(ring: Ring) -> None:
    former = f"ps-0 in {ring.state.ring.generation}"
    ring.exit_pod("worker-1", ExitCause.PREEMPTED)
    ring.serve()
    served = ring.state.pods[PS].incarnation
    late = PsStarted(address="l:1", ledgers=ring.groups(PS, LedgerRecord()), claim=99)
    ring.feed(late, Service.PS, PS, former)
    assert ring.state.pods[PS].incarnation == served


def test_the_last_snapshot_comes_before_the_workers_stop(ring: Ring) -> None:
    ring.feed(events.StopRequested(reason="SIGINT"), Service.LAUNCHER, "launcher")
    assert not ring.take(StopPod)
    (order,) = ring.take(TakeSnapshot)
    taken = events.SnapshotTaken(
        manifest="m", request=order.request, ledgers=ring.groups(PS, LedgerRecord()), size_bytes=1, seconds=0.1
    )
    ring.feed(taken, Service.PS, PS, ring.state.pods[PS].incarnation)
    assert {command.pod for command in ring.take(StopPod)} == {"worker-0", "worker-1", "worker-2"}
    assert ring.state.job_state is commands.JobState.STOPPED


def test_the_audit_of_a_finished_job_stays_when_its_last_generation_is_served_late(ring: Ring) -> None:
    ring.serve(whole(ring.state.plan))
    (order,) = ring.take(TakeSnapshot)
    ledgers = ring.groups(PS, whole(ring.state.plan))
    taken = events.SnapshotTaken(manifest="m", request=order.request, ledgers=ledgers, size_bytes=1, seconds=0.1)
    ring.feed(taken, Service.PS, PS, ring.state.pods[PS].incarnation)
    generation = ring.state.ring.generation
    ring.exit_pod("worker-2", ExitCause.PREEMPTED)
    assert ring.state.ring.generation == generation + 1
    ring.feed(events.LedgersRead(ps=PS, manifest="m", ledgers=ledgers), Service.MASTER, "master", "master")
    assert ring.is_in(commands.JobState.SUCCEEDED)
    ring.serve(whole(ring.state.plan))
    assert ring.state.closing.audit is not None
    assert ring.state.closing.audit.exact


def test_a_resume_continues_with_higher_numbers_and_no_members(ring: Ring) -> None:
    generation = ring.state.ring.generation
    ring.feed(events.JobResumed(reason="again"), Service.LAUNCHER, "launcher-2")
    assert ring.members == []
    ring.start("worker-0")
    assert (ring.state.ring.generation, ring.members) == (generation + 1, ["worker-0"])


def test_requests_for_ps_are_ignored(ring: Ring) -> None:
    ring.feed(events.ScaleRequested(ps=2, workers=1), Service.CLIENT, "client")
    assert ring.state.ps == 1
    assert {command.pod for command in ring.take(StopPod)} == {"worker-1", "worker-2"}


def test_invariants_hold_and_the_log_replays(ring: Ring) -> None:
    ring.exit_pod("worker-1", ExitCause.PREEMPTED)
    check(ring.state)
    ring.serve()
    check(ring.state)
    ring.check_replay()
    restored = core_snapshot.decode(core_snapshot.encode(ring.state), ring.state.job)
    assert restored.ring == ring.state.ring


def test_users_see_the_ring_in_place_of_the_ps(ring: Ring) -> None:
    messages, seen = EventMessages(), progress_snapshot(ring.state, {}, ring.now_s, 0.0)
    assert seen.ring == len(ring.members)
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    (decided,) = [one for one in ring.log[-2:] if isinstance(one.envelope.event, events.Decided)]
    assert "The ring has 2 workers: worker-0 left." in messages.lines(decided, ring.state)


def test_a_replica_that_differed_is_in_the_report(ring: Ring) -> None:
    differed = events.ReplicaDiffered(step=8, tensor="dense/kernel")
    ring.feed(differed, Service.WORKER, "worker-0", ring.incarnation("worker-0"))
    assert ring.state.ring.differences == ["worker-0 differed from the other replicas in dense/kernel at step 8"]
    (line,) = EventMessages().lines(ring.log[-1], ring.state)
    assert line.startswith("The weights of worker-0 were not those of the other workers in dense/kernel at step 8.")


class RandomRing(RuleBasedStateMachine):
    """Processes start, serve, stop, die and lose connections in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(RING)
        self.alive: set[str] = set()
        self.generations: list[int] = []

    @rule(worker=WORKERS)
    def start(self, worker: str) -> None:
        if worker not in self.alive:
            self.alive.add(worker)
            self.ring.start(worker)

    @rule()
    def serve(self) -> None:
        if self.ring.members and self.ring.members[0] in self.alive:
            self.ring.serve()

    @rule(worker=WORKERS, has_model=st.booleans(), is_near=st.booleans())
    def lose_connection(self, worker: str, has_model: bool, is_near: bool) -> None:
        if worker in self.alive:
            is_member = worker in self.ring.members
            left = self.ring.state.ring.generation if is_member else 0
            near = is_near and has_model and not is_member
            self.ring.ready(worker, left=left, has_model=has_model, is_near=near, reason="a connection broke")

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        if worker in self.alive:
            self.alive.remove(worker)
            self.ring.exit_pod(worker, ExitCause.PREEMPTED)

    @rule(worker=WORKERS)
    def stop(self, worker: str) -> None:
        if worker in self.alive:
            self.alive.remove(worker)
            self.ring.feed(
                events.WorkerStopped(reason="SIGTERM"), Service.WORKER, worker, self.ring.incarnation(worker)
            )
            self.ring.exit_pod(worker, ExitCause.PREEMPTED)

    @invariant()
    def all_that_live_are_members_or_wait_for_a_member(self) -> None:
        check(self.ring.state)
        ring, members = self.ring.state.ring, set(self.ring.members)
        self.generations.append(ring.generation)
        assert self.generations == sorted(self.generations)
        assert not self.alive or members & self.alive, "no process that lives is in the ring"
        assert members <= self.alive or not self.alive
        near = {name for name, one in ring.ready.items() if one.said.is_near}
        if outside := (self.alive - members) & near:
            served = self.ring.state.pods[PS]
            assert not served.has_model or any(one in ring.ready for one in members), f"{outside} wait for nothing"

    def teardown(self) -> None:
        """Once all connections are lost, and the leader serves, every process is in the ring."""
        for worker in 2 * sorted(self.alive):  # The first report may form a generation. Its connections are lost, too.
            self.lose_connection(worker, has_model=True, is_near=True)
        if self.alive:
            self.ring.serve()
            assert set(self.ring.members) == self.alive
        self.ring.check_replay()


TestRandomRing = RandomRing.TestCase
TestRandomRing.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
