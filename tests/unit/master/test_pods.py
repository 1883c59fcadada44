"""What the core does about reports of pods: by the cause of an exit, and when they come twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core.pods.restarts import RESTARTS, Restart
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.timers import pending_of, restart_of, start_of
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import StartPod
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Purpose, Service
from elasticdl.shared.process.exit_codes import EXIT_NO_MEMORY

WORKER, PS = PodName("worker-0"), PodName("ps-0")


@pytest.fixture
def driver() -> Driver:
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    return driver


def failure_of(driver: Driver) -> str:
    return driver.state.failure.message if driver.state.failure else ""


def test_every_cause_has_a_rule() -> None:
    assert RESTARTS.keys() == set(ExitCause)


@pytest.mark.parametrize("cause", [cause for cause, rule in RESTARTS.items() if rule is Restart.AT_ONCE])
def test_what_is_no_fault_of_the_pod_is_never_counted(driver: Driver, cause: ExitCause) -> None:
    for _ in range(3 * driver.state.job.limits.relaunches_max):
        driver.exit_pod(PS, cause)
        assert driver.take(StartPod) == [StartPod(pod=PS, service=Service.PS)]
        driver.start_pod(PS)
    assert driver.state.pods[PS].faults == 0
    assert driver.state.failure is None


def test_out_of_memory_is_counted_and_the_message_says_what_to_do(driver: Driver) -> None:
    for _ in range(driver.state.job.limits.relaunches_max + 1):
        driver.exit_pod(PS, ExitCause.OUT_OF_MEMORY)
        if not driver.state.failure:
            driver.fire(restart_of(PS))
            driver.start_pod(PS)
    assert driver.state.failure is not None
    assert "ps-0 failed 6 times in a row (out of memory)" in driver.state.failure.message
    assert "Use more ps, or fewer workers." in driver.state.failure.message


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        ([(3, ())], (0, 1, 2)),
        ([(4, ()), (3, ("worker-1",))], (0, 2, 3)),
        ([(4, ()), (2, ("worker-0", "worker-2"))], (1, 3)),
        ([(4, ()), (2, ("worker-0",))], (1, 2)),
        ([(4, ()), (3, ("worker-1",)), (5, ())], (0, 1, 2, 3, 4)),
        ([(4, ()), (3, ("worker-1",)), (2, ("worker-3",))], (0, 2)),
        ([(3, ()), (3, ("worker-1",))], (0, 2, 3)),
        ([(3, ()), (2, ("ps-0", "nothing", "worker-9"))], (0, 1)),
    ],
)
def test_a_request_may_name_the_workers_that_leave(
    driver: Driver, requests: list[tuple[int, tuple[str, ...]]], wanted: tuple[int, ...]
) -> None:
    for workers, leaving in requests:
        names = tuple(PodName(name) for name in leaving)
        driver.feed(events.ScaleRequested(workers=workers, leaving=names), Service.CLIENT, "client")
    assert driver.state.wanted_workers == tuple(f"worker-{number}" for number in wanted)


def test_a_pod_that_ran_out_of_memory_is_not_to_blame_while_the_next_one_gets_more(driver: Driver) -> None:
    """Neither it nor the batch that it was running, however many workers run out of memory with it."""
    driver.feed(events.ScaleRequested(workers=3), Service.CLIENT, "client")
    workers = [WORKER, PodName("worker-1"), PodName("worker-2")]
    for name in workers[1:]:
        driver.start_pod(name)
    same_batch = (events.RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=0), batch=0),)
    limits = [1000 << 20, 1500 << 20, 2250 << 20]
    for limit in limits:
        for name in workers:
            driver.exit_pod(
                name,
                ExitCause.OUT_OF_MEMORY,
                running_batches=same_batch,
                memory_limit_bytes=limit,
                next_memory_limit_bytes=limit * 3 // 2,
            )
        for name in workers:
            driver.fire(restart_of(name))
            driver.start_pod(name)
    assert (failure_of(driver), [driver.state.pods[name].faults for name in workers]) == ("", [0, 0, 0])
    for name in workers[:2]:
        driver.exit_pod(
            name, ExitCause.OUT_OF_MEMORY, running_batches=same_batch, memory_limit_bytes=limits[-1] * 3 // 2
        )
    message = failure_of(driver)
    assert "2 workers crashed (out of memory)" in message
    assert "The kernel killed worker-1 when it used 3375Mi of memory, its limit." in message
    assert "--worker_resource_request=memory=6750Mi" in message
    assert "records crash" not in message


def test_a_worker_that_never_gets_ready_ends_the_job_after_as_many_tries_as_one_that_crashes(driver: Driver) -> None:
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    for number in range(driver.state.job.limits.relaunches_max + 1):
        assert failure_of(driver) == ""
        assert driver.take(StartPod)
        instance = PodInstance(f"hangs {number}")
        driver.feed_from_launcher(events.PodStarted(pod=WORKER, service=Service.WORKER, instance=instance))
        driver.fire(start_of(WORKER))
        assert driver.take(commands.StopPod)[0].kill
        ended = events.PodExited(
            pod=WORKER, service=Service.WORKER, instance=instance, cause=ExitCause.PREEMPTED, exit_code=-9
        )
        driver.feed_from_launcher(replace(ended, log_tail="last line"))
    assert failure_of(driver) == "worker-0 did not get ready within 300 s, 6 times in a row.\nlast line"


def test_a_worker_whose_start_gets_no_memory_ends_the_job_with_one_sentence(driver: Driver) -> None:
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    driver.feed_from_launcher(
        events.PodStarted(pod=WORKER, service=Service.WORKER, instance=PodInstance("starts without memory"))
    )
    driver.feed_from_launcher(
        events.PodExited(
            pod=WORKER,
            service=Service.WORKER,
            instance=PodInstance("starts without memory"),
            cause=ExitCause.OUT_OF_MEMORY,
            exit_code=EXIT_NO_MEMORY,
            log_tail="error: the worker can't continue",
        )
    )
    assert driver.state.failure is not None
    assert driver.state.failure.message == (
        "worker-0 can't continue.\nerror: the worker can't continue\n"
        "worker-0 ran out of memory. Use smaller minibatches, or fewer workers."
    )


def test_a_process_that_refuses_without_a_reason_is_said_to_have_given_none(driver: Driver) -> None:
    driver.exit_pod(WORKER, ExitCause.REFUSED, exit_code=2)
    assert failure_of(driver) == "worker-0 can't continue.\nIt ended with exit code 2, and its log has no error."


def _pending(driver: Driver, name: PodName, limit_s: float, reason: str = "can't pull the image x:1: gone") -> None:
    service = Service(name.split("-")[0])
    driver.feed_from_launcher(events.PodPending(pod=name, service=service, reason=reason, limit_s=limit_s))


@pytest.mark.parametrize("name", [PS, WORKER])
def test_a_pod_whose_image_can_not_be_pulled_ends_the_job_after_some_time(driver: Driver, name: PodName) -> None:
    driver.exit_pod(name, ExitCause.NODE_LOST)
    _pending(driver, name, 30.0)
    due_s = driver.state.timers[pending_of(name)]
    _pending(driver, name, 30.0, "can't pull the image x:1: back-off")
    assert driver.state.timers[pending_of(name)] == due_s
    driver.fire(pending_of(name))
    assert driver.state.failure is not None
    assert driver.state.failure.message == (f"{name} could not start within 30 s: can't pull the image x:1: back-off")


def test_a_pod_that_starts_late_or_waits_for_room_ends_nothing(driver: Driver) -> None:
    driver.exit_pod(PS, ExitCause.NODE_LOST)
    _pending(driver, PS, 30.0)
    _pending(driver, PS, 0.0, "no room on any node")
    assert pending_of(PS) not in driver.state.timers
    _pending(driver, PS, 30.0)
    driver.start_pod(PS)
    assert pending_of(PS) not in driver.state.timers


def test_a_job_trains_without_a_worker_whose_image_can_not_be_pulled(driver: Driver) -> None:
    driver.feed(events.ScaleRequested(workers=2), Service.CLIENT, "client")
    driver.take(commands.StartPod)
    other = PodName("worker-1")
    _pending(driver, other, 30.0)
    driver.fire(pending_of(other))
    assert driver.state.failure is None
    assert pending_of(other) in driver.state.timers


def test_a_start_that_is_reported_again_changes_nothing(driver: Driver) -> None:
    first = PodInstance(driver.instance(WORKER))
    again = events.PodStarted(pod=WORKER, service=Service.WORKER, instance=first)
    pod = driver.state.pods[WORKER]
    driver.feed_from_launcher(again)
    assert (pod.phase, pod.starts) == (PodPhase.RUNNING, 1)
    driver.exit_pod(WORKER, ExitCause.NODE_LOST)
    driver.feed_from_launcher(again)
    assert (pod.phase, pod.instance) == (PodPhase.ORDERED, "")


def test_the_reason_why_a_pod_is_pending_is_kept_until_it_starts(driver: Driver) -> None:
    driver.feed(events.ScaleRequested(workers=2), Service.CLIENT, "client")
    driver.take(commands.StartPod)
    other = PodName("worker-1")
    driver.feed_from_launcher(events.PodPending(pod=other, service=Service.WORKER, reason="no room on any node"))
    assert driver.state.pods[other].pending == "no room on any node"
    driver.feed_from_launcher(events.PodPending(pod=WORKER, service=Service.WORKER, reason="late"))
    driver.start_pod(other)
    assert driver.state.pods[other].pending == driver.state.pods[WORKER].pending == ""
