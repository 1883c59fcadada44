"""Runs of a job: the first one, and resumes with and without the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.master.driver import Driver, close, job_spec, whole

from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import LostLog
from elasticdl.shared.names import PodInstance, PodName, Purpose, Service

RESUMED_S = 1_000_000


@pytest.fixture
def driver() -> Iterator[Driver]:
    """The beginning of a log whose predecessor is lost."""
    driver = Driver(job_spec(output="file:///out"))
    driver.now_s = RESUMED_S
    lost = LostLog(until_s=RESUMED_S - 60.0, records=70)
    driver.feed(events.JobResumed(reason="resumed without its log", lost=lost), Service.LAUNCHER, "launcher.2")
    driver.feed(events.TermStarted(term=driver.state.term + 1), Service.MASTER, "master.2")
    yield driver
    driver.check_replay()


def test_numbers_continue_above_all_that_the_lost_log_can_have_used(driver: Driver) -> None:
    driver.start_all()
    (dispatch,) = driver.take(commands.Dispatch)
    assert dispatch.dispatch > RESUMED_S
    assert driver.state.term > RESUMED_S
    assert next(task_messages(driver.state, dispatch, term=driver.state.term)).message_id.startswith(
        "launcher.2.train.0."
    )


def test_tasks_in_the_ledgers_are_not_dispatched(driver: Driver) -> None:
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 7), (9, 12)))})
    assert driver.dispatched() == [7, 8, *range(12, 40)]
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, 6), (9, 12)))})
    assert driver.dispatched() == [6], "what an older snapshot lacks is dispatched all the same"


def test_a_job_whose_training_was_complete_is_audited_at_once(driver: Driver) -> None:
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": whole(driver.state.plan)})
    assert driver.is_in(JobState.CLOSING)
    close(driver, whole(driver.state.plan))
    assert driver.dispatched(Purpose.EXPORT) == [0]
    assert [lost for _, lost in driver.state.lost_logs] == [LostLog(until_s=RESUMED_S - 60.0, records=70)]


def test_the_time_between_two_runs_is_in_no_duration() -> None:
    driver = Driver(job_spec())
    driver.start_all()
    driver.now_s = 50.0
    driver.finish(0)
    training = driver.state.training
    assert training
    first_s, began_s = driver.state.first_step_s, training.epochs[0].started_s
    driver.now_s = 1050.0
    driver.feed(events.JobResumed(reason="resumed"), Service.LAUNCHER, "launcher.2")
    pause_s = driver.state.paused_s
    assert 900.0 < pause_s < 1100.0
    assert driver.state.first_step_s == first_s + pause_s
    trained_s = driver.state.trained_s
    assert trained_s - driver.state.first_step_s == pytest.approx(50.0 - first_s, abs=1.0), "nothing was trained since"
    assert training.epochs[0].started_s == began_s + pause_s
    driver.check_replay()


def test_late_events_of_a_former_launcher_do_not_change_the_present_run() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    driver.feed(events.JobResumed(reason="resumed"), Service.LAUNCHER, "launcher.2")
    driver.start_all()
    former = events.PodStarted(pod=PodName("ps-0"), service=Service.PS, instance=PodInstance("17"))
    driver.feed(former, Service.LAUNCHER, "launcher", "launcher")
    driver.feed(events.StopRequested(reason="SIGINT"), Service.LAUNCHER, "launcher", "launcher")
    pod = driver.state.pods[PodName("ps-0")]
    assert (pod.instance, pod.phase) == (driver.instance("ps-0"), PodPhase.RUNNING)
    assert not driver.state.stop_reason
    driver.check_replay()


def test_a_finished_job_that_gets_more_epochs_trains_them_and_exports_to_the_new_output() -> None:
    driver = Driver(job_spec(workers=1, output="file:///out"))
    driver.start_all()
    former = whole(driver.state.plan)
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": former})
    close(driver, former)
    (first,) = [one for one in driver.take(commands.Dispatch) if one.purpose is Purpose.EXPORT]
    driver.finish(0, purpose=Purpose.EXPORT)
    assert driver.is_in(JobState.SUCCEEDED)

    tasks, epochs = driver.state.plan.tasks, driver.state.plan.epochs
    driver.state.best.stale_epochs = 3
    resumed = events.JobResumed(reason="resumed", epochs=epochs + 1, output="file:///other")
    driver.feed(resumed, Service.LAUNCHER, "launcher.2")
    assert driver.state.best.stale_epochs == 0
    driver.feed(events.TermStarted(term=driver.state.term + 1), Service.MASTER, "master.2")
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": former})
    driver.start_pod("worker-0")
    assert driver.dispatched() == list(range(tasks, tasks + driver.state.plan.tasks_per_epoch))
    driver.exit_pod("ps-0", events.ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": whole(driver.state.plan)})
    close(driver, whole(driver.state.plan))
    (second,) = [one for one in driver.take(commands.Dispatch) if one.purpose is Purpose.EXPORT]
    assert (first.label, second.label) == ("", "file:///other")
    driver.check_replay()
