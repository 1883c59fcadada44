"""Spare workers: who is promoted, in whose place, and what follows when a spare dies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, job_spec
from tests.unit.master.test_rings import RING, Ring

from elasticdl.master.core import State
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.invariants import check
from elasticdl.master.core.pods.apply import apply_failed_pod_command
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.timers import restart_of, start_of
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import PromoteWorker, StartPod, StopPod
from elasticdl.shared.messages.events import ExitCause, FailureKind
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.views.event_messages import EventMessages
from elasticdl.views.wall_time.causes import Cause
from elasticdl.views.wall_time.fold import wall_time


def build(job: Driver, worker: str) -> None:
    """A process of a worker starts and builds the model."""
    job._starts[PodName(worker)] = job._starts.get(PodName(worker), 0) + 1
    started = events.PodStarted(pod=PodName(worker), service=Service.WORKER, instance=job.instance(worker))
    job.feed_from_launcher(started)
    job.feed(events.ModelBuilt(), Service.WORKER, worker, job.incarnation(worker))


def train(number: int) -> TaskRef:
    return TaskRef(purpose=Purpose.TRAIN, number=number)


class Spares(Driver):
    """A job with two workers, a ps, and spares."""

    def __init__(self, spares: int = 1) -> None:
        super().__init__(job_spec(workers=2, spare_workers=spares))
        self.start_pod("ps-0", initialised=True)

    def build(self, worker: str) -> None:
        """A process of a worker starts and builds the model."""
        build(self, worker)

    def begin(self, worker: str) -> None:
        """A worker that was promoted is ready."""
        self.feed(events.WorkerStarted(), Service.WORKER, worker, self.incarnation(worker))

    def start(self, worker: str) -> None:
        """A worker builds the model and takes part."""
        self.build(worker)
        self.begin(worker)

    def promoted(self) -> list[tuple[str, str]]:
        """Who was promoted since the last call, and in whose place."""
        return [(each.worker, each.replaces) for each in self.take(PromoteWorker)]

    def started(self) -> list[tuple[str, bool]]:
        """Pods that were ordered since the last call, and whether they are spares."""
        return [(each.pod, each.is_spare) for each in self.take(StartPod)]

    def phase(self, worker: str) -> PodPhase:
        """The phase of a pod."""
        return self.state.pods[PodName(worker)].phase


@pytest.fixture
def job() -> Spares:
    return with_spares(1)


def with_spares(count: int) -> Spares:
    """Two workers that train, and spares that wait."""
    job = Spares(count)
    job.start("worker-0")
    job.start("worker-1")
    for number in range(2, 2 + count):
        job.build(f"worker-{number}")
    job.commands.clear()
    return job


def test_every_worker_builds_the_model_first_and_spares_are_started_when_all_workers_run() -> None:
    job = Spares()
    assert job.started() == [("ps-0", False), ("worker-0", False), ("worker-1", False)]
    job.build("worker-0")
    assert job.promoted() == [("worker-0", "worker-0")]
    job.begin("worker-0")
    assert job.started() == []
    job.start("worker-1")
    assert (job.promoted(), job.started()) == ([("worker-1", "worker-1")], [("worker-2", True)])
    job.build("worker-2")
    assert (job.promoted(), job.phase("worker-2")) == ([], PodPhase.WAITING)
    assert ("worker-2", job.incarnation("worker-2")) in job.state.watched
    check(job.state)


def test_a_job_without_spares_promotes_no_worker() -> None:
    job = Driver(job_spec(workers=2))
    job.start_all(initialised=True)
    assert (job.take(PromoteWorker), job.state.spares) == ([], ())


def test_a_spare_takes_the_place_of_a_worker_that_dies_and_its_name_becomes_that_of_the_next_spare(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert (job.promoted(), job.started()) == ([("worker-2", "worker-0")], [])
    assert (job.state.wanted_workers, job.state.spares) == (("worker-1", "worker-2"), ("worker-0",))
    job.begin("worker-2")
    assert job.started() == [("worker-0", True)]
    job.build("worker-0")
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    assert job.promoted() == [("worker-0", "worker-2")]
    assert (job.state.wanted_workers, job.state.left_out) == (("worker-0", "worker-1"), ())
    job.check_replay()


def test_a_worker_that_waits_for_its_restart_is_replaced_at_once(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.OWN_FAULT, exit_code=70)
    assert job.promoted() == [("worker-2", "worker-0")]
    assert job.state.pods[PodName("worker-0")].faults == 1


def test_without_a_spare_that_waits_the_worker_is_restarted_and_the_one_that_is_ready_first_takes_part() -> None:
    job = with_spares(1)
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    job.build("worker-2")
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    job.take(StartPod)
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert (job.promoted(), job.started()) == ([], [("worker-0", False)])
    job.build("worker-2")
    assert job.promoted() == [("worker-2", "worker-0")]
    job.build("worker-0")
    assert (job.phase("worker-0"), job.promoted()) == (PodPhase.WAITING, [])


def test_a_spare_that_dies_while_it_waits_is_started_again(job: Spares) -> None:
    for _ in range(10):
        job.exit_pod("worker-2", ExitCause.PREEMPTED)
        assert job.started() == [("worker-2", True)]
        job.build("worker-2")
    assert job.failure() == ""


def test_a_spare_that_is_asked_to_stop_again_and_again_is_started_again(job: Spares) -> None:
    for _ in range(10):
        stopped = events.WorkerStopped(reason="SIGTERM")
        job.feed(stopped, Service.WORKER, "worker-2", job.incarnation("worker-2"))
        job.exit_pod("worker-2", ExitCause.FINISHED, exit_code=0)
        job.fire(restart_of(PodName("worker-2")))
        assert job.started() == [("worker-2", True)]
        job.build("worker-2")


def test_a_spare_that_dies_right_after_its_promotion_is_replaced_by_the_next_one() -> None:
    job = with_spares(2)
    job.exit_pod("worker-1", ExitCause.PREEMPTED)
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    assert job.promoted() == [("worker-2", "worker-1"), ("worker-3", "worker-2")]
    assert (job.state.wanted_workers, job.state.spares) == (("worker-0", "worker-3"), ("worker-1", "worker-2"))


def test_an_order_that_failed_is_repeated_for_the_same_process(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    (seq,) = [seq for seq, decided in job.state.pending_commands if isinstance(decided.commands[0], PromoteWorker)][-1:]
    failed = events.CommandsRan(up_to=seq, failures=(events.CommandFailure(position=0, message="not reachable"),))
    job.promoted()
    job.feed(failed, Service.MASTER, "master")
    assert job.promoted() == []
    job.fire(restart_of(PodName("worker-2")))
    assert job.promoted() == [("worker-2", "worker-2")]


def test_a_failed_order_of_a_former_process_has_no_effect(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    (seq,) = [seq for seq, decided in job.state.pending_commands if isinstance(decided.commands[0], PromoteWorker)][-1:]
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    job.start("worker-2")
    job.promoted()
    failed = events.CommandsRan(up_to=seq, failures=(events.CommandFailure(position=0, message="not reachable"),))
    job.feed(failed, Service.MASTER, "master")
    assert (job.phase("worker-2"), job.promoted()) == (PodPhase.RUNNING, [])


def test_a_promoted_spare_that_does_not_get_ready_is_killed(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    job.fire(start_of(PodName("worker-2")))
    assert [(each.pod, each.kill) for each in job.take(StopPod)] == [("worker-2", True)]


def test_a_worker_that_never_gets_ready_after_its_promotion_ends_the_job() -> None:
    job = Spares()
    for _ in range(job.state.job.limits.relaunches_max + 1):
        assert job.failure() == ""
        job.build("worker-0")
        job.fire(start_of(PodName("worker-0")))
        assert [each.kill for each in job.take(StopPod)] == [True]
        job.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert "worker-0 did not get ready within 300 s, 6 times in a row" in job.failure()


def test_a_promoted_worker_whose_stop_failed_is_not_ready_yet(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    job.feed(events.ScaleRequested(workers=1), Service.CLIENT, "client")
    stops = {each.pod: each for each in job.take(StopPod)}
    evolved = job.state.pods[PodName("worker-2")]
    assert evolved.is_promoted
    apply_failed_pod_command(job.state, stops[PodName("worker-2")], job.now_s)
    assert job.phase("worker-2") is PodPhase.STARTING


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_time_of_a_promoted_spare_is_that_of_a_worker(job: Spares, is_killed: bool) -> None:
    if is_killed:  # Ordered by the master, so the worker's place is given up first.
        job.exit_pod("worker-0", ExitCause.STOPPED)
    else:
        job.feed(events.ScaleRequested(workers=3), Service.CLIENT, "client")
    job.begin("worker-2")
    job.now_s += 1.0
    job.feed(events.TaskTaken(task=train(0), dispatch=1, attempt=1, reply=""), Service.WORKER, "worker-2")
    job.now_s += 10.0
    job.finish(0, "worker-2", times=Times(compute_us=10_000_000))
    (computing,) = [part for part in wall_time(job.log).parts if part.cause is Cause.COMPUTING]
    assert computing.seconds == pytest.approx(10.0 / (2 if is_killed else 3))


def test_a_silent_spare_is_killed(job: Spares) -> None:
    missed = events.HeartbeatsMissed(pod=PodName("worker-2"), incarnation=job.incarnation("worker-2"), silent_s=6.0)  # type: ignore[arg-type]
    job.feed(missed, Service.MASTER, "master")
    assert [(each.pod, each.kill) for each in job.take(StopPod)] == [("worker-2", True)]
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert job.promoted() == []


def test_more_workers_are_the_spares_first(job: Spares) -> None:
    job.feed(events.ScaleRequested(workers=3), Service.CLIENT, "client")
    assert job.promoted() == [("worker-2", "worker-2")]
    job.begin("worker-2")
    assert job.started() == [("worker-3", True)]


def test_fewer_workers_leave_the_spares_alone(job: Spares) -> None:
    job.feed(events.ScaleRequested(workers=1), Service.CLIENT, "client")
    assert [each.pod for each in job.take(StopPod)] == ["worker-1"]
    job.exit_pod("worker-1", ExitCause.STOPPED, exit_code=0)
    assert (job.started(), job.state.spares) == ([], ("worker-2",))


def test_spares_that_fail_again_and_again_do_not_end_the_job(job: Spares) -> None:
    failed = events.WorkerFailed(kind=FailureKind.USER_CODE, message="it can't be built here")
    for _ in range(job.state.job.limits.relaunches_max + 1):
        job.feed(failed, Service.WORKER, "worker-2", job.incarnation("worker-2"))
        job.exit_pod("worker-2", ExitCause.OWN_FAULT, exit_code=70)
        job.fire(restart_of(PodName("worker-2")))
        if not job.take(commands.StartPod):
            break
        job.build("worker-2")
    assert (job.failure(), job.phase("worker-2")) == ("", PodPhase.EXITED)


def test_a_scaled_down_worker_becomes_a_spare_only_as_another_process() -> None:
    job = with_spares(1)
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    job.take(StartPod)
    job.feed(events.ScaleRequested(workers=1), Service.CLIENT, "client")
    assert [each.pod for each in job.take(StopPod)] == ["worker-1"]
    assert job.promoted() == []


def test_a_promoted_spare_joins_the_ring_under_its_own_name() -> None:
    ring = Ring(replace(RING, workers=2, spare_workers=1))
    for worker in ("worker-0", "worker-1"):
        build(ring, worker)
        ring.ready(worker, has_model=worker != "worker-0", is_near=worker != "worker-0")
        ring.serve()
        ring.feed(events.WorkerStarted(), Service.WORKER, worker, ring.incarnation(worker))
    build(ring, "worker-2")
    assert ring.members == ["worker-0", "worker-1"]
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    assert (ring.members, ring.take(PromoteWorker)[-1].replaces) == (["worker-1"], "worker-0")
    ring.serve()
    ring.ready("worker-2", has_model=True, is_near=True)
    assert ring.members == ["worker-1", "worker-2"]
    check(ring.state)
    ring.check_replay()


def test_users_are_told_what_spares_do(job: Spares) -> None:
    job.exit_pod("worker-2", ExitCause.PREEMPTED)
    job.build("worker-2")
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    messages, state, shown = EventMessages(), State(), list[str]()
    for record in job.log:
        shown += messages.lines(record, evolve(state, record))
    assert shown == [
        "worker-2, a spare worker, is ready.",
        "worker-2, a spare worker, died (SIGKILL).",
        "worker-2, a spare worker, is ready.",
        "worker-0 died (SIGKILL). Its tasks are dispatched again.",
        "worker-2, a spare worker, takes the place of worker-0.",
    ]


def test_a_successor_repeats_the_order_that_its_predecessor_has_decided(job: Spares) -> None:
    job.exit_pod("worker-0", ExitCause.PREEMPTED)
    job.feed(events.TermStarted(term=2), Service.MASTER, "master", "next master")
    again = [command for _, decided in job.state.pending_commands for command in decided.commands]
    assert (
        PromoteWorker(
            worker=PodName("worker-2"),
            incarnation=job.state.pods[PodName("worker-2")].incarnation,
            replaces=PodName("worker-0"),
        )
        in again
    )
