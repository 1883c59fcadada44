"""What the core does about reports of pods: by the cause of an exit, and when they come twice."""

from __future__ import annotations

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core.pods.restarts import RESTARTS, Restart
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.timers import restart_of
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import StartPod
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service

WORKER, PS = PodName("worker-0"), PodName("ps-0")


@pytest.fixture
def driver() -> Driver:
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    return driver


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
    assert "Use smaller minibatches, fewer workers or more ps." in driver.state.failure.message


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
