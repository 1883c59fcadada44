"""What former runs and former instances may still say: nothing, with the exceptions that ``identity`` names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.master.driver import Driver, close, job_spec, whole

from elasticdl.master.core import State, identity
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.fold import fold
from elasticdl.master.core.pods.state import EARLY_EVENTS_MAX, PodPhase
from elasticdl.shared.bus.ports import EVENTS_AT_ONCE_MAX
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState, StopPod
from elasticdl.shared.messages.events import Envelope, Event, ExitCause, FailureKind, LogRecord
from elasticdl.shared.names import NO_INSTANCE, Incarnation, PodInstance, PodName, Purpose, Service

TASK = TaskRef(purpose=Purpose.TRAIN, number=0)
TAKEN = events.TaskTaken(task=TASK, dispatch=1, attempt=1, reply="reply")
WORKER, PS = PodName("worker-0"), PodName("ps-0")


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver(job_spec())
    driver.start_all(initialised=True)
    yield driver
    if driver.state.senders:
        driver.check_replay()


def resume(driver: Driver) -> str:
    """Another launcher resumes the job; returns the worker's former instance."""
    former = driver.incarnation(WORKER)
    driver.feed(events.JobResumed(reason="resumed"), Service.LAUNCHER, "launcher.2")
    driver.start_all(initialised=True)
    return former


@pytest.mark.parametrize(
    "event",
    [
        events.WorkerFailed(kind=FailureKind.USER_CODE, message="no such column"),
        events.WorkerStopped(reason="SIGTERM"),
        events.TaskFailed(task=TASK, dispatch=1, attempt=1, kind=FailureKind.DATA, message="unreadable"),
        events.TaskFinished(
            task=TASK, dispatch=1, attempt=1, batches=5, absorbed_by=ps_set_digest({PS: Incarnation("ps-0.1")})
        ),
        TAKEN,
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_worker_of_a_former_run_has_no_say(driver: Driver, event: Event) -> None:
    former = resume(driver)
    before = driver.state.running_attempts.copy(), driver.state.pods[WORKER].stopped_incarnation
    driver.run = Incarnation("launcher")
    driver.feed(event, Service.WORKER, WORKER, former)
    driver.run = driver.state.run
    assert (driver.state.running_attempts, driver.state.pods[WORKER].stopped_incarnation) == before
    assert driver.is_in(JobState.TRAINING)
    assert driver.state.training is not None and not driver.state.training.finished


def test_a_task_that_a_dead_worker_took_does_not_stay_in_progress(driver: Driver) -> None:
    former = driver.incarnation(WORKER)
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    driver.feed(TAKEN, Service.WORKER, WORKER, former)
    assert not driver.state.running_attempts
    driver.start_pod(WORKER)
    driver.feed(TAKEN, Service.WORKER, WORKER, former)
    assert not driver.state.running_attempts


def test_a_task_that_a_dead_worker_has_finished_counts(driver: Driver) -> None:
    """Its delivery is off the queue: without the event the master would wait for the task forever."""
    former, ps = driver.incarnation(WORKER), driver.incarnation(PS)
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    driver.start_pod(WORKER)
    finished = events.TaskFinished(
        task=TASK, dispatch=1, attempt=1, batches=5, absorbed_by=ps_set_digest({PS: Incarnation(ps)})
    )
    driver.feed(finished, Service.WORKER, WORKER, former)
    assert driver.state.training is not None and 0 in driver.state.training.complete


def test_what_a_process_says_before_its_start_is_reported_counts_afterwards(driver: Driver) -> None:
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    for _ in range(EARLY_EVENTS_MAX + 1):
        driver.feed(TAKEN, Service.WORKER, WORKER, "a stranger")
    driver.feed(events.WorkerStarted(notes=("ready",)), Service.WORKER, WORKER, "next")
    driver.feed(TAKEN, Service.WORKER, WORKER, "next")
    pod = driver.state.pods[WORKER]
    assert (pod.phase, pod.incarnation, len(pod.early_events)) == (PodPhase.ORDERED, "worker-0.1", EARLY_EVENTS_MAX)
    started = events.PodStarted(pod=WORKER, service=Service.WORKER, instance=PodInstance("next"))
    driver.feed_from_launcher(started)
    assert (pod.phase, pod.incarnation, pod.early_events) == (PodPhase.RUNNING, "next", [])
    assert list(driver.state.running_attempts[TASK]) == ["next"]


def test_a_process_that_has_not_declared_its_run_counts_as_a_former_one(driver: Driver) -> None:
    """Its first events are lost with a part of the log, so it is from before the loss."""
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    driver.start_pod(WORKER)
    driver.state.senders.clear()
    driver.feed(TAKEN, Service.WORKER, WORKER, driver.incarnation(WORKER))
    assert not driver.state.running_attempts


def test_an_order_to_stop_names_the_process(driver: Driver) -> None:
    driver.take(commands.StartPod)
    driver.feed(events.ScaleRequested(workers=4), Service.CLIENT, "client")
    driver.start_pod("worker-2")
    driver.feed(events.ScaleRequested(workers=1), Service.CLIENT, "client")
    assert driver.take(StopPod) == [
        StopPod(pod=PodName("worker-1"), reason="scaled down", instance=driver.instance("worker-1")),
        StopPod(pod=PodName("worker-2"), reason="scaled down", instance=driver.instance("worker-2")),
        StopPod(pod=PodName("worker-3"), reason="scaled down", instance=NO_INSTANCE),
    ]


def test_a_kill_that_failed_concerns_no_later_process(driver: Driver) -> None:
    missed = events.HeartbeatsMissed(pod=WORKER, incarnation=Incarnation(driver.incarnation(WORKER)), silent_s=6.5)
    driver.feed(missed, Service.MASTER, "master", "master")
    ((seq, _),) = [each for each in driver.state.pending_commands if isinstance(each[1].commands[0], StopPod)]
    driver.exit_pod(WORKER, ExitCause.PREEMPTED)
    driver.start_pod(WORKER)
    failures = (events.CommandFailure(position=0, message="no answer"),)
    driver.feed(events.CommandsRan(up_to=seq, failures=failures), Service.MASTER, "master", "master")
    assert not driver.state.pods[WORKER].is_unresponsive


def test_crashes_are_counted_by_process_also_where_every_process_id_is_1(driver: Driver) -> None:
    running = events.RunningBatch(task=TASK, batch=1)
    for _ in range(driver.state.job.limits.crashes_per_batch_max):
        assert driver.state.failure is None
        driver.exit_pod(WORKER, ExitCause.OWN_FAULT, exit_code=-11, running_batches=(running,))
        driver.start_pod(WORKER)
    assert "while running the same batch" in driver.failure()


def refuse(driver: Driver, worker: PodName, kind: FailureKind = FailureKind.ENVIRONMENT) -> None:
    failed = events.WorkerFailed(kind=kind, message="the disk is broken")
    driver.feed(failed, Service.WORKER, worker, driver.incarnation(worker))
    driver.exit_pod(worker, ExitCause.REFUSED, exit_code=1, log_tail="the disk is broken")


def test_a_worker_that_refuses_is_restarted_while_another_one_works(driver: Driver) -> None:
    for _ in range(driver.state.job.limits.relaunches_max + 2):
        refuse(driver, WORKER)
        assert driver.failure() == ""
        driver.fire("restart worker-0")
        assert [command.pod for command in driver.take(commands.StartPod)] == [WORKER]
        driver.start_pod(WORKER)
    refuse(driver, WORKER)
    refuse(driver, PodName("worker-1"))
    assert "the disk is broken" in driver.failure()


@pytest.mark.parametrize("kind", [FailureKind.USER_CODE, FailureKind.DATA])
def test_a_worker_that_finds_a_wrong_model_or_wrong_data_fails_the_job(driver: Driver, kind: FailureKind) -> None:
    refuse(driver, WORKER, kind)
    assert driver.failure() == "the disk is broken"


def test_a_worker_that_refuses_while_the_model_is_exported_fails_the_job() -> None:
    """The output is the same for every worker, for instance on a full disk."""
    driver = Driver(job_spec(output="file:///out"))
    driver.start_all(initialised=True)
    for task in driver.dispatched():
        driver.finish(task)
    assert driver.is_in(JobState.CLOSING)
    close(driver, whole(driver.state.plan))
    refuse(driver, WORKER)
    assert driver.failure() == "the disk is broken"
    driver.check_replay()


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 2, 1, 1), (3, 3, 2, 1, 2)])
def test_events_that_were_sent_together_count_once_in_any_order(order: tuple[int, ...]) -> None:
    state, notes = State(), [events.WorkerStarted(notes=(str(number),)) for number in range(1, 4)]
    new = [number for number in order if identity.is_new(state, envelope(number, notes[number - 1]))]
    assert sorted(new) == [1, 2, 3]
    assert not state.skipped


def test_an_event_that_is_later_than_any_that_was_sent_with_it_does_not_count() -> None:
    state = State()
    assert identity.is_new(state, envelope(EVENTS_AT_ONCE_MAX + 2, TAKEN))
    assert not identity.is_new(state, envelope(1, TAKEN))
    assert identity.is_new(state, envelope(2, TAKEN))


def envelope(number: int, event: Event) -> Envelope:
    return Envelope(
        service=Service.WORKER, name=WORKER, incarnation=Incarnation("cafe"), number=number, time_s=1.0, event=event
    )


@pytest.mark.parametrize(
    "event",
    [
        events.JobSubmitted(spec=job_spec()),
        events.JobResumed(reason="resumed after training", continues=Incarnation("a run before")),
        events.JobResumed(reason="a run that opens itself again", continues=Incarnation("stranger")),
    ],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("service", list(Service))
def test_a_run_that_has_begun_does_not_begin_again(driver: Driver, event: Event, service: Service) -> None:
    driver.finish(0)
    before = fold(driver.log)
    sender = {Service.WORKER: (WORKER, driver.incarnation(WORKER)), Service.PS: (PS, driver.incarnation(PS))}
    driver.feed(event, service, *sender.get(service, (service.value, "stranger")))
    after = driver.state
    assert (after.run, after.training, after.pods, after.spec) == (
        before.run,
        before.training,
        before.pods,
        before.spec,
    )
    assert not driver.take(commands.StartPod)


def resume_without_a_run(driver: Driver) -> None:
    nameless = Envelope(
        service=Service.LAUNCHER,
        name=PodName("launcher"),
        incarnation=Incarnation("launcher.2"),
        number=1,
        time_s=driver.now_s,
        event=events.JobResumed(reason="resumed"),
    )
    driver.log.append(LogRecord(seq=len(driver.log) + 1, envelope=nameless))
    evolve(driver.state, driver.log[-1])


def test_a_resume_without_a_run_does_not_interrupt_the_present_one(driver: Driver) -> None:
    before = fold(driver.log)
    resume_without_a_run(driver)
    assert (driver.state.run, driver.state.pods) == (before.run, before.pods)
    assert driver.state.resumes == 0


def test_a_run_without_a_log_resumes_what_it_has_submitted_again() -> None:
    driver = Driver(job_spec())
    driver.feed(events.JobResumed(reason="resumed without its log"), Service.LAUNCHER, "launcher", "launcher")
    assert driver.state.resumes == 1
