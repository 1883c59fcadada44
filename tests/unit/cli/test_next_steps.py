"""What to do with a job that did not succeed. A resume is suggested only where it can help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.job_log import ABSORBED, NEXT_PROCESS, PROCESS, PS, SPEC, TASK, WORKER, Log

from elasticdl.cli.display.next_steps import next_step, resume_line
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State
from elasticdl.master.core.closing.audit import AuditResult
from elasticdl.ps.snapshots.recovery import NothingLeftError
from elasticdl.shared.errors import UnreadableError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind
from elasticdl.shared.model.manifests import DamagedError
from elasticdl.shared.names import PodName, Purpose, Service

FIRST = TaskRef(purpose=Purpose.TRAIN, number=0)


@pytest.fixture
def log() -> Log:
    """A job whose model is initialised; nothing was trained yet."""
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=SPEC))
    log.decide(commands.StartPod(pod=PS, service=Service.PS), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, instance=PROCESS))
    started = events.PodStarted(pod=WORKER, service=Service.WORKER, instance=NEXT_PROCESS)
    log.add(Service.LAUNCHER, PodName("launcher"), started)
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    return log


def initialise(log: Log) -> None:
    log.add(Service.PS, PS, events.ModelInitialised(signature="s", parameters=1))


def finish_one(log: Log) -> None:
    log.add(
        Service.WORKER,
        WORKER,
        events.TaskFinished(
            task=FIRST, dispatch=1, attempt=1, absorbed_by=ABSORBED, records=20, batches=2, counted=((0, 2),)
        ),
    )


def fail_a_task(log: Log, kind: FailureKind) -> None:
    failed = events.TaskFailed(task=TASK, dispatch=1, attempt=1, kind=kind, message="the loss is nan", batch=1, step=7)
    log.add(Service.WORKER, WORKER, *[failed] * SPEC.limits.attempts_max)


def suggested(log: Log, tmp_path: Path) -> str:
    return next_step(RunDirectory(tmp_path, SPEC.job).arguments, log.state)


@pytest.mark.parametrize("kind", [FailureKind.USER_CODE, FailureKind.DATA, FailureKind.ENVIRONMENT])
def test_a_job_that_trained_nothing_is_not_resumed(log: Log, tmp_path: Path, kind: FailureKind) -> None:
    log.add(Service.WORKER, WORKER, events.WorkerFailed(kind=kind, message="no"))
    assert "start a new job" in suggested(log, tmp_path)
    assert "resume" not in suggested(log, tmp_path)


def test_a_model_that_never_computed_a_task_is_not_resumed_even_with_a_snapshot(log: Log, tmp_path: Path) -> None:
    initialise(log)
    fail_a_task(log, FailureKind.USER_CODE)
    assert suggested(log, tmp_path) == "Fix the model file, then start a new job. Nothing was trained yet."


@pytest.mark.parametrize(("kind", "thing"), [(FailureKind.USER_CODE, "model file"), (FailureKind.DATA, "data")])
def test_a_job_with_progress_may_be_resumed_once_the_cause_is_fixed(
    log: Log, tmp_path: Path, kind: FailureKind, thing: str
) -> None:
    initialise(log)
    finish_one(log)
    fail_a_task(log, kind)
    text, *without = suggested(log, tmp_path).splitlines()
    assert text.startswith(f"Fix the {thing} and start a new job. If ")
    resume = f"elasticdl resume {SPEC.job} --run_dir={tmp_path}"
    assert text.endswith(resume)
    assert without == [f"To continue without the records of task 1: {resume} --skip_tasks=1"]


def test_what_cant_be_read_and_replaced_is_resumed_with_a_new_bus(log: Log) -> None:
    initialise(log)
    finish_one(log)
    log.state.fail(str(UnreadableError("the register of ps-0", "it is damaged")), guilty=PS)
    assert next_step("j", log.state) == f"To resume from the latest snapshots: {resume_line('j')} --rebuild_bus"


def test_a_diverged_model_is_not_resumed_and_reported_once(log: Log, tmp_path: Path) -> None:
    initialise(log)
    finish_one(log)
    before = list(log.shown)
    fail_a_task(log, FailureKind.NOT_FINITE)
    assert "resume" not in suggested(log, tmp_path)
    assert log.shown == before, "the error is printed in full when the job has ended"
    assert log.state.failure is not None
    first, hint = log.state.failure.message.splitlines()
    assert first == "the loss is nan since step 7 (train 1, batch 1, on worker-0)"
    assert "learning rate" in hint


def test_initial_weights_that_give_no_finite_loss_are_not_called_diverged(log: Log, tmp_path: Path) -> None:
    initialise(log)
    failed = events.TaskFailed(
        task=TASK,
        dispatch=1,
        attempt=1,
        kind=FailureKind.NOT_FINITE,
        message="the loss is nan",
        batch=0,
        step=0,
        source="a.csv",
        first_record=20,
        last_record=40,
    )
    log.add(Service.WORKER, WORKER, failed)
    assert suggested(log, tmp_path) == "Fix the cause and start a new job."
    assert log.state.failure is not None
    first = log.state.failure.message.splitlines()[0]
    place = "(train 1 with records 20 to 39 of a.csv, batch 0, on worker-0)"
    assert first == f"the loss is nan since step 0, with the initial weights {place}"


def test_a_failure_of_a_task_is_reported_at_once(log: Log) -> None:
    failed = events.TaskFailed(
        task=TASK, dispatch=1, attempt=1, kind=FailureKind.USER_CODE, message="feed() raised\nmore", batch=1
    )
    log.add(Service.WORKER, WORKER, failed)
    assert log.shown == ["worker-0 failed at train 1, batch 1: feed() raised. Retrying the task."]


def test_a_job_can_be_resumed_once_its_environment_is_fixed(log: Log, tmp_path: Path) -> None:
    initialise(log)
    exited = events.PodExited(pod=PS, service=Service.PS, instance=PROCESS, cause=ExitCause.REFUSED, exit_code=1)
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert (
        suggested(log, tmp_path)
        == f"To resume from the latest snapshots: elasticdl resume {SPEC.job} --run_dir={tmp_path}"
    )


def test_a_stopped_job_is_resumed_from_snapshots_if_it_has_any(log: Log, tmp_path: Path) -> None:
    log.add(Service.CLIENT, PodName("client-1"), events.StopRequested(reason="elasticdl stop"))
    run = RunDirectory(tmp_path, SPEC.job)
    assert suggested(log, tmp_path) == f"Nothing was trained yet. To start the job again: {resume_line(run.arguments)}"
    initialise(log)
    assert suggested(log, tmp_path) == f"To resume from the latest snapshots: {resume_line(run.arguments)}"


def test_a_job_without_log_is_resumed_if_it_has_snapshots(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, SPEC.job)
    assert next_step(run.arguments, State()).startswith("There is nothing to resume")
    assert next_step(run.arguments, State(), has_snapshots=True).endswith(
        f"To resume from the snapshots: {resume_line(run.arguments)}"
    )


def test_a_job_without_usable_snapshots_is_not_resumed(log: Log, tmp_path: Path) -> None:
    initialise(log)
    finish_one(log)
    damage = DamagedError("file:///storage/ps-0/manifest", "is missing")
    exited = events.PodExited(
        pod=PS,
        service=Service.PS,
        instance=PROCESS,
        cause=ExitCause.REFUSED,
        exit_code=1,
        log_tail=f"error: the ps can't go on reason={NothingLeftError(4, [damage])}",
    )
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert suggested(log, tmp_path) == "Start a new job. ps-0 has no usable snapshot left."


def test_success_needs_no_next_step(log: Log, tmp_path: Path) -> None:
    log.decide(commands.EnterState(state=JobState.SUCCEEDED))
    assert suggested(log, tmp_path) == ""


def test_a_job_whose_export_fails_in_the_users_code_is_exported_once_the_model_file_is_fixed(
    log: Log, tmp_path: Path
) -> None:
    initialise(log)
    finish_one(log)
    state = log.state
    state.spec = replace(SPEC, output="file:///out")
    state.closing.audit = AuditResult(exact=True, groups=1, batches=32, records=2000)
    state.closing.export_dispatch = 3
    state.fail("no attribute of a layer", guilty=WORKER, kind=FailureKind.USER_CODE)
    says = "The model is trained. Fix the model file, then export it without training: "
    assert suggested(log, tmp_path) == f"{says}elasticdl export {SPEC.job} --run_dir={tmp_path}"
