"""The export writes the audited model, and only the export that was dispatched for it counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.master.driver import Driver, close, job_spec, whole

from elasticdl.master.core.closing.state import EXPORT
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import Dispatch, JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind
from elasticdl.shared.names import Purpose, Service


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A job whose training is complete and audited."""
    driver = Driver(job_spec(output="file:///out", workers=1))
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan))
    yield driver
    driver.check_replay()


def export_of(driver: Driver) -> Dispatch:
    (export,) = [one for one in driver.take(Dispatch) if one.purpose is Purpose.EXPORT]
    return export


def take_export(driver: Driver, export: Dispatch) -> None:
    taken = events.TaskTaken(task=EXPORT, dispatch=export.dispatch, attempt=1, reply="reply")
    driver.feed(taken, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def drop_export(driver: Driver, dispatch: int) -> None:
    dropped = events.TaskReturned(task=EXPORT, dispatch=dispatch, attempt=1, reason="a ps restarted", is_dropped=True)
    driver.feed(dropped, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def restore(driver: Driver, finished: int) -> None:
    """The ps dies, and its next instance restores a snapshot with so many tasks."""
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    driver.start_pod("ps-0", {"g": LedgerRecord(finished=((0, finished),))})


def test_the_model_is_read_from_the_audited_instances(driver: Driver) -> None:
    export = export_of(driver)
    assert export.audited == {"ps-0": driver.incarnation("ps-0")}
    (message,) = task_messages(driver.state, export, term=1)
    assert message.audited == export.audited


def test_an_export_from_before_a_ps_was_restored_does_not_end_the_job(driver: Driver) -> None:
    stale = export_of(driver)
    take_export(driver, stale)
    restore(driver, finished=39)
    driver.finish(0, purpose=Purpose.EXPORT, dispatch=stale.dispatch)
    assert not driver.state.closing.exported
    driver.finish(39)
    close(driver, whole(driver.state.plan))
    export = export_of(driver)
    assert export.dispatch > stale.dispatch
    driver.finish(0, purpose=Purpose.EXPORT, dispatch=stale.dispatch)
    assert driver.is_in(JobState.CLOSING)
    driver.finish(0, purpose=Purpose.EXPORT, dispatch=export.dispatch)
    assert driver.is_in(JobState.SUCCEEDED)


def test_an_export_waits_until_an_earlier_one_writes_no_more(driver: Driver) -> None:
    stale = export_of(driver)
    take_export(driver, stale)
    restore(driver, finished=40)
    close(driver, whole(driver.state.plan))
    assert driver.take(Dispatch) == []
    returned = events.TaskReturned(task=EXPORT, dispatch=stale.dispatch, attempt=1, reason="a ps restarted")
    driver.feed(returned, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
    assert export_of(driver).audited == {"ps-0": driver.incarnation("ps-0")}


def test_an_export_that_a_worker_could_not_do_is_dispatched_again(driver: Driver) -> None:
    """The worker has asked an instance of the ps that was replaced, and still runs."""
    export = export_of(driver)
    take_export(driver, export)
    drop_export(driver, export.dispatch - 1)
    take_export(driver, export)
    assert driver.take(Dispatch) == []
    drop_export(driver, export.dispatch)
    again = export_of(driver)
    assert again.dispatch > export.dispatch and again.audited == export.audited
    driver.finish(0, purpose=Purpose.EXPORT, dispatch=again.dispatch)
    assert driver.is_in(JobState.SUCCEEDED)


def test_an_export_of_a_former_run_does_not_end_the_present_one(driver: Driver) -> None:
    stale = export_of(driver)
    driver.feed(events.JobResumed(reason="resumed"), Service.LAUNCHER, "launcher.2")
    driver.take(commands.StartPod)
    former = driver.incarnation("worker-0")
    driver.start_pod("worker-0")
    driver.start_pod("ps-0", {"g": whole(driver.state.plan)})
    close(driver, whole(driver.state.plan))
    export_of(driver)
    finished = events.TaskFinished(task=EXPORT, dispatch=stale.dispatch, attempt=1)
    driver.feed(finished, Service.WORKER, "worker-0", former)
    assert driver.is_in(JobState.CLOSING)


def fail_export(driver: Driver, export: Dispatch, attempt: int, kind: FailureKind = FailureKind.USER_CODE) -> None:
    failed = events.TaskFailed(
        task=EXPORT, dispatch=export.dispatch, attempt=attempt, kind=kind, message="untracked resource"
    )
    driver.feed(failed, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def test_an_export_that_fails_in_the_users_code_is_final_after_one_confirmation(driver: Driver) -> None:
    export = export_of(driver)
    fail_export(driver, export, attempt=1)
    assert driver.is_in(JobState.CLOSING)
    fail_export(driver, export, attempt=2)
    assert driver.state.failure is not None
    assert "untracked resource" in driver.state.failure.message
