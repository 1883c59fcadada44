"""A resume skips tasks that failed for good: they are not dispatched any more, and the audit names what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, close, job_spec, whole

from elasticdl.cli.display.next_steps import next_step
from elasticdl.cli.jobs.resume_changes import ResumeChanges, check_skip
from elasticdl.master.core.closing.audit import audit
from elasticdl.master.core.training.skipping import failed_for_good
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind, RunningBatch
from elasticdl.shared.names import PodInstance, PodName, Purpose, Service
from elasticdl.views.report import build
from elasticdl.views.tasks import TaskFilter, TaskQuery, count_tasks, task_rows

POISONED = 7


def failed(driver: Driver, kind: FailureKind = FailureKind.USER_CODE, task: int = POISONED) -> None:
    event = events.TaskFailed(
        task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, attempt=1, kind=kind, message="bad record\nmore",
        traceback="", batch=3, source="", first_record=0, last_record=50, step=1,
    )  # fmt: skip
    driver.feed(event, Service.WORKER, "worker-0", driver.incarnation("worker-0"))


def failing() -> Driver:
    """A job that fails because of one task, after all others are finished."""
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    for task in range(driver.state.plan.tasks):
        if task != POISONED:
            driver.finish(task)
    for _ in range(3):
        failed(driver)
    assert "bad record" in driver.failure()
    driver.exit_pod("worker-0", ExitCause.FINISHED, exit_code=0)
    return driver


def ledger(driver: Driver) -> LedgerRecord:
    """Everything but two batches of the task that failed: it has five, of ten records each."""
    plan = driver.state.plan
    return LedgerRecord(
        finished=((0, POISONED), (POISONED + 1, plan.tasks)), open={POISONED: 3}, step=plan.batches - 2,
        records=plan.records - 20, checksum=99,
    )  # fmt: skip


def resume(driver: Driver, skipped: tuple[tuple[int, int], ...]) -> None:
    driver.commands.clear()
    driver.feed(events.JobResumed(reason="failed", skipped=skipped), Service.LAUNCHER, "launcher.2")
    driver.feed(events.TermStarted(term=2), Service.MASTER, "master.2")
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": ledger(driver)})
    driver.start_pod("worker-0")


def test_a_skipped_task_is_not_dispatched_and_the_audit_names_it() -> None:
    driver = failing()
    assert failed_for_good(driver.state) == {POISONED: "bad record"}
    resume(driver, ((POISONED, POISONED + 1),))
    assert POISONED not in driver.dispatched()
    close(driver, ledger(driver))
    assert driver.is_in(JobState.SUCCEEDED)
    found = build(driver.state)["audit"]
    assert (found["exact"], found["skipped_records"], found["repaired"]) == (True, 20, 0)
    assert [each["task"] for each in found["skipped"]] == [POISONED]
    assert "39 of 40 training tasks finished" in count_tasks(driver.state)
    assert "1 skipped" in count_tasks(driver.state)
    rows, _ = task_rows(driver.state, TaskQuery(state=TaskFilter.SKIPPED))
    assert [(row[0], row[-1]) for row in rows] == [(str(POISONED), "skipped")]
    driver.check_replay()


def test_without_the_decision_the_task_is_dispatched_again() -> None:
    driver = failing()
    resume(driver, ())
    assert driver.dispatched() == [POISONED]
    assert failed_for_good(driver.state) == {}
    failed(driver)
    assert not driver.failure(), "a resume counts the attempts from the beginning"


def test_a_ps_that_restarts_need_not_have_what_is_skipped() -> None:
    driver = failing()
    resume(driver, ((POISONED, POISONED + 1),))
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    older = replace(ledger(driver), finished=((0, POISONED), (POISONED + 2, driver.state.plan.tasks)))
    driver.start_pod("ps-0", {"g": older})
    assert driver.dispatched() == [POISONED + 1]


@pytest.mark.parametrize("kind", [FailureKind.DATA, FailureKind.NOT_FINITE])
def test_one_failure_of_these_kinds_is_for_good(kind: FailureKind) -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    failed(driver, kind)
    assert list(failed_for_good(driver.state)) == [POISONED]


def test_a_batch_that_crashes_workers_is_of_a_task_that_failed_for_good() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all(initialised=True)
    running = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=4), batch=2)
    driver.state.crashes[running] = {PodInstance(str(number)) for number in range(9)}
    assert failed_for_good(driver.state) == {4: "workers crash or hang while running batch 2"}


def test_what_is_missing_besides_the_skipped_tasks_is_a_difference() -> None:
    driver = failing()
    plan, left = driver.state.plan, ledger(driver)
    skipped = RangeSet([(POISONED, POISONED + 1)])

    def problems(*ledgers: LedgerRecord) -> str:
        held = {PodName(f"ps-{number}"): driver.groups("ps-0", each) for number, each in enumerate(ledgers)}
        return "\n".join(audit(plan, 5, held, skipped).problems)

    assert problems(left) == ""
    assert "batches" in problems(replace(left, step=left.step + 1))
    assert "records" in problems(replace(left, records=left.records - 1))
    assert "partly absorbed" in problems(replace(left, open={POISONED: 3, 9: 1}))
    assert "different record checksums" in problems(left, replace(left, checksum=98))
    assert "checksum" in problems(whole(plan, checksum=6)), "a task that was absorbed after all is compared as ever"
    held = {PodName("ps-0"): driver.groups("ps-0", replace(left, finished=((0, POISONED),)))}
    assert audit(plan, 5, held, skipped).missing == ((POISONED + 1, plan.tasks),)


def test_only_tasks_that_failed_for_good_can_be_skipped() -> None:
    state = failing().state
    check_skip(ResumeChanges(skip_tasks=f" {POISONED}"), "job", state)
    with pytest.raises(UserError, match="has not failed for good") as refused:
        check_skip(ResumeChanges(skip_tasks="7-8"), "job", state)
    assert "task 8 of job" in str(refused.value)
    for beyond in ("999", "7,999-1000000000000000", "7-1000000000000000"):
        with pytest.raises(UserError, match="has not failed for good"):
            check_skip(ResumeChanges(skip_tasks=beyond), "job", state)
    assert "can be skipped: 7." in (refused.value.hint or "")
    for wrong in ("7,x", "9-8", ""):
        with pytest.raises(UserError, match="not the number of a task"):
            _ = ResumeChanges(skip_tasks=wrong).skipped
    assert ResumeChanges(skip_tasks="7,9-10,8").skipped == ((7, 11),)
    assert f"--skip_tasks={POISONED}" in next_step("job", state)


def test_a_task_that_is_skipped_already_can_be_named_again() -> None:
    driver = failing()
    resume(driver, ((POISONED, POISONED + 1),))
    check_skip(ResumeChanges(skip_tasks=str(POISONED)), "job", driver.state)


def test_a_synchronous_job_skips_nothing() -> None:
    driver = Driver(job_spec(workers=1, synchronous=True, grads_to_wait=2))
    with pytest.raises(UserError, match="trains synchronously"):
        check_skip(ResumeChanges(skip_tasks="7"), "job", driver.state)
    driver.feed(events.JobResumed(reason="failed", skipped=((7, 8),)), Service.LAUNCHER, "launcher.2")
    assert driver.state.training is not None
    assert not driver.state.training.skipped
