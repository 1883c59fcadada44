"""The master's core, driven by the events that services send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.master.driver import PS, Driver, close, job_spec, plan, whole

from elasticdl.master.core.timers import STOP
from elasticdl.master.core.training.state import PS_SETS_MAX
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Shuffle, Source
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind
from elasticdl.shared.names import Incarnation, PodInstance, PodName, Purpose, Service, TaskId


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver(job_spec(output="file:///out"))
    yield driver
    driver.check_replay()


def test_pods_are_started_and_tasks_dispatched_once_every_ps_serves(driver: Driver) -> None:
    started = driver.take(commands.StartPod)
    assert [command.pod for command in started] == ["ps-0", "worker-0", "worker-1"]
    assert driver.dispatched() == []
    driver.start_pod("ps-0")
    assert driver.is_in(JobState.TRAINING)
    assert driver.dispatched() == list(range(40))


def test_a_job_runs_to_its_exact_end(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    assert driver.is_in(JobState.CLOSING)
    close(driver, whole(driver.state.plan))
    assert driver.state.closing.audit is not None
    assert driver.state.closing.audit.exact
    assert driver.dispatched(Purpose.EXPORT) == [0]
    driver.finish(0, purpose=Purpose.EXPORT)
    assert driver.is_in(JobState.SUCCEEDED)
    assert {command.pod for command in driver.take(commands.StopPod)} == {"ps-0", "worker-0", "worker-1"}


@pytest.mark.parametrize("wrong", [{"step": 201}, {"records": 1999}, {"checksum": 5}])
def test_the_audit_fails_a_job_whose_ledger_differs_from_the_plan(driver: Driver, wrong: dict[str, int]) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan, **wrong))
    assert "ps-0/g" in driver.failure()
    assert driver.is_in(JobState.STOPPING)


def test_tasks_that_the_audit_finds_missing_are_dispatched_again(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, LedgerRecord(finished=((0, 7), (8, 40)), step=195, records=1950))
    assert driver.state.repaired == 1
    assert driver.dispatched() == [7]
    driver.finish(7)
    close(driver, whole(driver.state.plan))
    assert driver.state.closing.audit is not None
    assert driver.state.closing.audit.exact


def test_a_restored_ps_replaces_its_credits(driver: Driver) -> None:
    driver.start_all()
    driver.dispatched()
    for task in range(10):
        driver.finish(task)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    assert [command.pod for command in driver.take(commands.StartPod)] == ["ps-0"]
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 4),))})
    assert driver.dispatched() == [4, 5, 6, 7, 8, 9]


def test_a_task_finished_under_an_older_incarnation_is_not_credited(driver: Driver) -> None:
    driver.start_all()
    driver.dispatched()
    stale = driver.incarnation("ps-0")
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord()})
    driver.finish(3, credits={"ps-0": stale})
    assert driver.state.training is not None
    assert 3 not in driver.state.training.complete
    assert driver.dispatched() == [3]


def test_a_task_of_an_unknown_set_of_ps_is_dispatched_again(driver: Driver) -> None:
    driver.start_all()
    driver.dispatched()
    driver.finish(3, credits={"ps-0": "a stranger"})
    assert driver.state.training is not None
    assert 3 not in driver.state.training.complete
    assert driver.dispatched() == [3]


def test_a_task_that_is_finished_while_one_ps_restarts_counts_for_the_others() -> None:
    driver = Driver(job_spec(ps=2))
    driver.start_all()
    driver.dispatched()
    before = {name: driver.incarnation(name) for name in ("ps-0", "ps-1")}
    driver.exit_pod("ps-1", ExitCause.PREEMPTED)
    driver.finish(3, credits=before)
    assert driver.state.training is not None
    driver.start_pod("ps-1", {"g": LedgerRecord(finished=((3, 4),))})
    assert 3 in driver.state.training.complete


def test_only_the_last_sets_of_ps_are_remembered(driver: Driver) -> None:
    driver.start_all()
    for _ in range(2 * PS_SETS_MAX):
        driver.exit_pod("ps-0", ExitCause.PREEMPTED)
        driver.start_pod("ps-0")
    assert driver.state.training is not None
    assert len(driver.state.training.ps_sets) == PS_SETS_MAX
    driver.finish(3)
    assert 3 in driver.state.training.complete


def test_the_deliveries_of_a_killed_worker_are_returned(driver: Driver) -> None:
    driver.start_all()
    task = TaskRef(purpose=Purpose.TRAIN, number=0)
    taken = events.TaskTaken(task=task, dispatch=1, attempt=1, reply="$JS.ACK.x")
    driver.feed(taken, Service.WORKER, "worker-1", driver.incarnation("worker-1"))
    driver.exit_pod("worker-1", ExitCause.PREEMPTED)
    assert [command.reply for command in driver.take(commands.ReturnDelivery)] == ["$JS.ACK.x"]
    assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-1"]


def test_user_code_that_fails_everywhere_ends_the_job(driver: Driver) -> None:
    driver.start_all()
    failed = events.TaskFailed(
        task=TaskRef(purpose=Purpose.TRAIN, number=2),
        dispatch=1,
        attempt=1,
        kind=FailureKind.USER_CODE,
        message="feed raised ValueError: bad label",
        source="file:///data/a.csv",
        first_record=100,
        last_record=150,
    )
    for _ in range(2):
        driver.feed(failed, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
        assert driver.failure() == ""
    driver.feed(failed, Service.WORKER, "worker-1", driver.incarnation("worker-1"))
    assert "records 100 to 149 of file:///data/a.csv" in driver.failure()


def running_batches(task: int, batch: int) -> events.RunningBatch:
    return events.RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=task), batch=batch)


def test_a_batch_that_crashes_two_workers_fails_the_job(driver: Driver) -> None:
    driver.start_all()
    computed, fed, other = (running_batches(2, 3), running_batches(2, 4), running_batches(0, 0))
    driver.exit_pod("worker-0", ExitCause.OWN_FAULT, exit_code=-11, running_batches=(computed, fed))
    assert driver.failure() == ""
    driver.exit_pod("worker-1", ExitCause.OWN_FAULT, exit_code=-11, running_batches=(fed, other))
    place = "batch 4 of task train 2, 10 of the records 450 to 499 (from 0) of memory://data/a.csv"
    assert place in driver.failure()
    assert "batch 3" not in driver.failure()
    assert "task train 0" not in driver.failure()


def test_a_batch_of_a_global_shuffle_that_crashes_two_workers_names_its_ranges_by_file() -> None:
    sources = tuple(Source(uri=f"memory://{name}", size_bytes=1, etag="1", records=40) for name in "abc")
    driver = Driver(job_spec(replace(plan(), sources=sources, shuffle=Shuffle.GLOBAL)))
    driver.start_all()
    for worker in ("worker-0", "worker-1"):
        driver.exit_pod(worker, ExitCause.OWN_FAULT, exit_code=-11, running_batches=(running_batches(0, 0),))
    shards = driver.state.plan.shards(TaskId(0))
    assert len({shard.source for shard in shards}) > 1
    for number, source in enumerate(sources):
        ranges = ", ".join(f"{shard.start} to {shard.end - 1}" for shard in shards if shard.source == number)
        assert not ranges or f"{ranges} (from 0) of {source.uri}" in driver.failure()


def test_a_batch_in_which_two_workers_hang_fails_the_job_and_shows_where(driver: Driver) -> None:
    driver.start_all()
    stuck, stack = running_batches(2, 4), 'error: no progress\n  File "model.py", line 3, in feed'
    for worker in ("worker-0", "worker-1"):
        assert driver.failure() == ""
        driver.exit_pod(worker, ExitCause.HUNG, exit_code=79, running_batches=(stuck,), log_tail=stack)
    assert driver.failure() == (
        "2 workers hung while running the same batch:\n"
        "  batch 4 of task train 2, 10 of the records 450 to 499 (from 0) of memory://data/a.csv\n"
        "The model's code does not return from it within 600 s. Fix the code at the place below, or remove these "
        f"records. If the code needs more time, raise --batch_deadline_secs.\n{stack}"
    )
    driver.check_replay()


def test_a_worker_that_hangs_once_is_replaced(driver: Driver) -> None:
    driver.start_all()
    driver.exit_pod("worker-0", ExitCause.HUNG, exit_code=79, running_batches=(running_batches(2, 4),))
    assert driver.failure() == ""
    due_s = driver.state.timers["restart worker-0"]
    driver.feed(events.TimerFired(timer="restart worker-0", due_s=due_s), Service.MASTER, "master", "master")
    assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-0"]


def test_callbacks_in_which_two_workers_hang_have_no_records(driver: Driver) -> None:
    driver.start_all()
    hooks = events.RunningBatch(task=TaskRef(purpose=Purpose.MERGE, number=1), batch=0)
    for worker in ("worker-0", "worker-1"):
        driver.exit_pod(worker, ExitCause.HUNG, exit_code=79, running_batches=(hooks,))
    assert "task merge 1, which has no records" in driver.failure()


def test_all_batches_that_were_running_at_every_crash_are_named(driver: Driver) -> None:
    driver.start_all()
    for worker in ("worker-0", "worker-1"):
        driver.exit_pod(
            worker, ExitCause.OWN_FAULT, exit_code=-6, running_batches=(running_batches(1, 0), running_batches(1, 1))
        )
    assert "batch 0 of task train 1" in driver.failure()
    assert "batch 1 of task train 1" in driver.failure()
    driver.check_replay()


def test_crashes_with_a_batch_that_is_absorbed_later_are_forgotten(driver: Driver) -> None:
    driver.start_all()
    driver.exit_pod("worker-0", ExitCause.OWN_FAULT, exit_code=-6, running_batches=(running_batches(1, 0),))
    driver.finish(1, worker="worker-1")
    driver.exit_pod("worker-1", ExitCause.OWN_FAULT, exit_code=-6, running_batches=(running_batches(1, 0),))
    assert driver.failure() == ""


def test_kills_from_outside_are_never_counted(driver: Driver) -> None:
    driver.start_all()
    for _ in range(20):
        driver.exit_pod("worker-0", ExitCause.PREEMPTED)
        assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-0"]
        driver.start_pod("worker-0")
    assert driver.failure() == ""


def test_a_pod_that_keeps_crashing_waits_longer_each_time_and_ends_the_job(driver: Driver) -> None:
    driver.start_all()
    for _ in range(5):
        driver.exit_pod("worker-0", ExitCause.OWN_FAULT, exit_code=7)
        due_s = driver.state.timers["restart worker-0"]
        driver.feed(events.TimerFired(timer="restart worker-0", due_s=due_s), Service.MASTER, "master", "master")
        assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-0"]
        driver.start_pod("worker-0")
    driver.exit_pod("worker-0", ExitCause.OWN_FAULT, exit_code=7, log_tail="boom")
    assert "boom" in driver.failure()


def test_a_worker_that_exits_with_code_0_unannounced_has_crashed(driver: Driver) -> None:
    driver.start_all()
    driver.exit_pod("worker-0", ExitCause.FINISHED, exit_code=0, running_batches=(running_batches(1, 0),))
    assert driver.state.pods[PodName("worker-0")].faults == 1
    driver.exit_pod("worker-1", ExitCause.FINISHED, exit_code=0, running_batches=(running_batches(1, 0),))
    assert "2 workers crashed (exit code 0) while running the same batch" in driver.failure()


def test_a_worker_that_announced_its_stop_has_not_crashed(driver: Driver) -> None:
    driver.start_all()
    driver.feed(events.WorkerStopped(reason="SIGTERM"), Service.WORKER, "worker-0", driver.incarnation("worker-0"))
    driver.exit_pod("worker-0", ExitCause.FINISHED, exit_code=0)
    assert driver.state.pods[PodName("worker-0")].faults == 0


def test_a_stop_before_there_is_a_model_does_not_wait_for_a_snapshot(driver: Driver) -> None:
    driver.start_all()
    driver.feed(events.StopRequested(reason="Ctrl-C"), Service.CLIENT, "client")
    driver.exit_pod("worker-0", ExitCause.FINISHED, exit_code=0)
    driver.exit_pod("worker-1", ExitCause.FINISHED, exit_code=0)
    assert driver.take(commands.TakeSnapshot) == []
    assert driver.is_in(JobState.STOPPED)


@pytest.mark.parametrize("has_space_again", [False, True])
def test_a_ps_whose_storage_is_full_stops_the_job_which_can_be_resumed(driver: Driver, has_space_again: bool) -> None:
    driver.start_all()
    ps = Service.PS, "ps-0", driver.incarnation("ps-0")
    driver.feed(events.ModelInitialised(signature="s", parameters=1), *ps)
    driver.feed(events.StopRequested(reason="disk full: /storage"), *ps)
    for worker in ("worker-0", "worker-1"):
        driver.exit_pod(worker, ExitCause.FINISHED, exit_code=0)
    (order,) = driver.take(commands.TakeSnapshot)
    if has_space_again:
        taken = events.SnapshotTaken(manifest="m", request=order.request, ledgers=(), size_bytes=1, seconds=0.1)
        driver.feed(taken, *ps)
    else:
        driver.fire(STOP)
    assert driver.is_in(JobState.STOPPED)
    assert (driver.state.failure, driver.state.stop_reason) == (None, "disk full: /storage")
    assert driver.state.stopped_by is Service.PS
    driver.feed(events.JobResumed(reason="user"), Service.CLIENT, "client")
    assert {command.pod for command in driver.take(commands.StartPod)} == {"ps-0", "worker-0", "worker-1"}


def test_stop_ends_workers_then_snapshots_then_ends(driver: Driver) -> None:
    driver.start_all()
    driver.feed(events.ModelInitialised(signature="s", parameters=1), Service.PS, "ps-0", driver.incarnation("ps-0"))
    driver.feed(events.StopRequested(reason="Ctrl-C"), Service.CLIENT, "client")
    assert {command.pod for command in driver.take(commands.StopPod)} == {"worker-0", "worker-1"}
    assert driver.take(commands.TakeSnapshot) == []
    driver.exit_pod("worker-0", ExitCause.FINISHED, exit_code=0)
    driver.exit_pod("worker-1", ExitCause.FINISHED, exit_code=0)
    (order,) = driver.take(commands.TakeSnapshot)
    taken = events.SnapshotTaken(manifest="m", request=order.request, ledgers=(), size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, "ps-0", driver.incarnation("ps-0"))
    assert driver.is_in(JobState.STOPPED)
    driver.feed(events.JobResumed(reason="user"), Service.CLIENT, "client")
    assert {command.pod for command in driver.take(commands.StartPod)} == {"ps-0", "worker-0", "worker-1"}


def test_the_audit_requires_a_group_of_every_ps() -> None:
    driver = Driver(job_spec(ps=2))
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    for order in driver.take(commands.TakeSnapshot):
        taken = events.SnapshotTaken(manifest="m", request=order.request, ledgers=(), size_bytes=1, seconds=0.1)
        driver.feed(taken, Service.PS, order.ps, driver.incarnation(order.ps))
    held = driver.groups("ps-0", whole(driver.state.plan))
    for ps, ledgers in (("ps-0", held), ("ps-1", ())):
        read = events.LedgersRead(ps=PodName(ps), manifest="m", ledgers=ledgers)
        driver.feed(read, Service.MASTER, "master", "master")
    assert "ps-1 has no group in its final snapshot" in driver.failure()
    driver.check_replay()


def test_a_merge_that_a_stop_interrupted_is_dispatched_again_after_the_resume() -> None:
    training = plan()
    driver = Driver(job_spec(training, workers=1))
    driver.computes_metrics = False
    driver.start_all()
    epoch = training.tasks_per_epoch
    for task in range(epoch):
        driver.finish(task)
    assert len(driver.dispatched(Purpose.MERGE)) == 1
    driver.feed(events.StopRequested(reason="test"), Service.CLIENT, "client")
    driver.exit_pod("worker-0", ExitCause.FINISHED, 0)
    assert driver.is_in(JobState.STOPPED)
    driver.feed(events.JobResumed(reason="test"), Service.LAUNCHER, "launcher")
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, epoch),), step=epoch * 5)})
    assert len(driver.dispatched(Purpose.MERGE)) == 1
    driver.check_replay()


def test_repeated_records_change_nothing(driver: Driver) -> None:
    from elasticdl.master.core.evolve import evolve
    from elasticdl.master.core.fold import fold

    driver.start_all()
    driver.dispatched()
    driver.finish(0)
    before = fold(driver.log)
    evolve(driver.state, driver.log[-1])
    assert driver.state == before


@pytest.mark.parametrize("pod", ["ps-0", "worker-1"])
def test_an_unresponsive_process_is_killed_and_replaced(driver: Driver, pod: str) -> None:
    driver.start_all()
    task = TaskRef(purpose=Purpose.TRAIN, number=0)
    taken = events.TaskTaken(task=task, dispatch=1, attempt=1, reply="$JS.ACK.x")
    driver.feed(taken, Service.WORKER, "worker-1", driver.incarnation("worker-1"))
    missed = events.HeartbeatsMissed(pod=PodName(pod), incarnation=Incarnation(driver.incarnation(pod)), silent_s=6.5)
    driver.feed(missed, Service.MASTER, "master", "master")
    kill = commands.StopPod(pod=PodName(pod), reason="unresponsive", kill=True, instance=driver.instance(pod))
    assert driver.take(commands.StopPod) == [kill]
    assert len(driver.take(commands.ReturnDelivery)) == (1 if pod == "worker-1" else 0)
    assert driver.take(commands.StartPod) == []
    driver.exit_pod(pod, ExitCause.PREEMPTED)
    assert [command.pod for command in driver.take(commands.StartPod)] == [pod]


def kill_unresponsive(driver: Driver, batch: int) -> None:
    """A worker sends no heartbeats while it runs a batch, is killed, and replaced."""
    incarnation = Incarnation(driver.incarnation("worker-1"))
    missed = events.HeartbeatsMissed(pod=PodName("worker-1"), incarnation=incarnation, silent_s=6.5)
    driver.feed(missed, Service.MASTER, "master", "master")
    assert [command.kill for command in driver.take(commands.StopPod)] == [True]
    driver.exit_pod("worker-1", ExitCause.STOPPED, exit_code=-9, running_batches=(running_batches(1, batch),))
    driver.take(commands.StartPod)


def test_a_batch_that_blocks_one_worker_after_the_other_ends_the_job(driver: Driver) -> None:
    driver.start_all()
    for _ in range(driver.state.job.limits.relaunches_max):
        assert driver.failure() == ""
        kill_unresponsive(driver, 3)
        if not driver.failure():
            driver.start_pod("worker-1")
    assert "5 workers were killed because they were unresponsive while running the same batch" in driver.failure()
    assert "batch 3 of task train 1, 10 of the records" in driver.failure()
    driver.check_replay()


def test_workers_that_are_frozen_in_different_batches_end_nothing(driver: Driver) -> None:
    driver.start_all()
    for number in range(12):
        kill_unresponsive(driver, number % 3)
        driver.start_pod("worker-1")
        if number == 6:
            driver.finish(1, worker="worker-0")
    assert driver.failure() == ""


def test_missed_heartbeats_of_a_former_instance_change_nothing(driver: Driver) -> None:
    driver.start_all()
    missed = events.HeartbeatsMissed(pod=PS, incarnation=Incarnation("older"), silent_s=6.5)
    driver.feed(missed, Service.MASTER, "master", "master")
    assert driver.take(commands.StopPod) == []


def ran(driver: Driver, *positions: int) -> None:
    """The last decision's commands were run, some of them in vain."""
    seq, _ = driver.state.pending_commands[-1]
    failures = tuple(events.CommandFailure(position=position, message="nobody listens") for position in positions)
    driver.feed(events.CommandsRan(up_to=seq, failures=failures), Service.MASTER, "master", "master")


def fire(driver: Driver, timer: str) -> None:
    """A timer comes due."""
    driver.feed(events.TimerFired(timer=timer, due_s=driver.state.timers[timer]), Service.MASTER, "master", "master")


def test_an_order_that_did_not_arrive_is_repeated(driver: Driver) -> None:
    started = driver.take(commands.StartPod)
    ran(driver, 1)
    assert driver.take(commands.StartPod) == []
    fire(driver, "restart worker-0")
    assert driver.take(commands.StartPod) == [started[1]]


def test_a_snapshot_order_that_did_not_arrive_is_repeated_under_its_number(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    (order,) = driver.take(commands.TakeSnapshot)
    ran(driver, 0)
    assert driver.take(commands.TakeSnapshot) == []
    fire(driver, "order snapshots again")
    assert driver.take(commands.TakeSnapshot) == [order]


def test_a_process_that_never_gets_ready_is_replaced(driver: Driver) -> None:
    (worker,) = [command.pod for command in driver.take(commands.StartPod) if command.pod == "worker-0"]
    started = events.PodStarted(pod=worker, service=Service.WORKER, instance=PodInstance("77"))
    driver.feed(started, Service.LAUNCHER, "launcher")
    fire(driver, "start worker-0")
    kill = commands.StopPod(pod=worker, reason="unresponsive", kill=True, instance=PodInstance("77"))
    assert driver.take(commands.StopPod) == [kill]


def scale(driver: Driver, workers: int) -> None:
    driver.feed(events.ScaleRequested(workers=workers), Service.CLIENT, "client")


def test_more_workers_are_started_and_fewer_are_stopped_without_touching_the_others(driver: Driver) -> None:
    driver.start_all()
    scale(driver, 4)
    assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-2", "worker-3"]
    driver.start_pod("worker-2")
    driver.start_pod("worker-3")
    scale(driver, 1)
    assert [command.pod for command in driver.take(commands.StopPod)] == ["worker-1", "worker-2", "worker-3"]
    driver.exit_pod("worker-2", ExitCause.FINISHED, exit_code=0)
    assert driver.take(commands.StartPod) == []
    scale(driver, 3)
    assert [command.pod for command in driver.take(commands.StartPod)] == ["worker-2"]


def test_a_stop_that_the_platform_could_not_run_is_decided_again(driver: Driver) -> None:
    driver.start_all()
    scale(driver, 1)
    (stop,) = driver.take(commands.StopPod)
    ran(driver, 0)
    assert driver.take(commands.StopPod) == []
    fire(driver, "restart worker-1")
    assert driver.take(commands.StopPod) == [stop]
    driver.exit_pod("worker-1", ExitCause.STOPPED, exit_code=0)
    assert driver.take(commands.StartPod) == []
