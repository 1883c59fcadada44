"""The meter of a run that continues what a former meter has counted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core import State
from elasticdl.master.core.evolve import evolve
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import Envelope, ExitCause, PodExited, TaskFinished, TaskTaken
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import NOBODY, Incarnation, PodInstance, PodName, Purpose, Service
from elasticdl.views.run_meter import RunMeter

STATE = Driver(job_spec()).state


def heartbeat(meter: RunMeter, worker: int, incarnation: str, requests: float) -> None:
    metrics = {"data_requests": requests, "data_fetched_bytes": 10 * requests, "batches": requests}
    meter.on_heartbeat(
        Heartbeat(
            service=Service.WORKER,
            name=PodName(f"worker-{worker}"),
            incarnation=Incarnation(incarnation),
            time_s=1.0,
            metrics=metrics,
        )
    )


def continued(running: Mapping[PodName, Incarnation]) -> RunMeter:
    return RunMeter(RunMeasured(started_s=0.0, data_requests=100, data_fetched_bytes=1000), running)


def counted(meter: RunMeter) -> tuple[int, int]:
    return meter.measured(STATE, 0.0).data_requests, meter.batches_computed


def test_what_a_process_has_used_before_the_meter_began_is_counted_already() -> None:
    meter = continued({PodName("worker-0"): Incarnation("a")})
    heartbeat(meter, 0, "a", 40)
    heartbeat(meter, 0, "a", 45)
    assert counted(meter) == (105, 5)


def test_all_that_later_processes_use_is_counted() -> None:
    meter = continued({PodName("worker-0"): Incarnation("a")})
    heartbeat(meter, 0, "a", 40)
    heartbeat(meter, 0, "b", 7)
    heartbeat(meter, 1, "c", 3)
    assert counted(meter) == (110, 10)
    assert meter.measured(STATE, 0.0).data_fetched_bytes == 1100


def test_the_first_process_of_an_unknown_incarnation_is_the_former_one_unless_it_has_ended() -> None:
    meter = continued({PodName("worker-0"): NOBODY, PodName("worker-1"): NOBODY})
    heartbeat(meter, 0, "a", 40)
    heartbeat(meter, 0, "b", 7)
    exited = PodExited(
        pod=PodName("worker-1"),
        service=Service.WORKER,
        instance=PodInstance("1"),
        exit_code=-9,
        cause=ExitCause.PREEMPTED,
    )
    envelope = Envelope(
        service=Service.LAUNCHER,
        name=PodName("launcher"),
        incarnation=Incarnation("l"),
        number=1,
        time_s=0.0,
        event=exited,
    )
    meter.on_record(envelope, STATE)
    heartbeat(meter, 1, "c", 3)
    assert counted(meter) == (110, 10)


def test_a_job_that_ends_before_any_heartbeat_tells_its_start_from_its_training() -> None:
    driver, meter = Driver(job_spec(workers=1)), RunMeter()
    driver.start_all(initialised=True)
    driver.now_s = 9.0
    (task, *_) = driver.dispatched()
    taken = TaskTaken(task=TaskRef(purpose=Purpose.TRAIN, number=task), dispatch=1, attempt=1, reply="r")
    driver.feed(taken, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
    driver.now_s = 10.0
    driver.finish(task, times=Times.of({"compute": 0.5}))
    state = State()
    for record in driver.log:
        evolve(state, record)
        meter.on_record(record.envelope, state)
    driver.exit_pod("worker-0", ExitCause.PREEMPTED)
    meter.on_record(driver.log[-1].envelope, driver.state)
    measured = meter.measured(state, 0.0)
    assert measured.first_gradient_s == pytest.approx(10.01 - 0.5 * 4 / 5), "the first of five batches"
    assert measured.starting_s == pytest.approx(9.51, abs=0.1)
    assert measured.working_s == pytest.approx(0.5, abs=0.1)


def test_the_batches_of_a_merged_epoch_are_not_those_of_the_worker_that_merges_it() -> None:
    driver, meter = Driver(job_spec(workers=1)), RunMeter()
    driver.start_all(initialised=True)
    worker = ("worker-0", driver.incarnation("worker-0"))
    merge = TaskRef(purpose=Purpose.MERGE, number=1)
    driver.feed(TaskTaken(task=merge, dispatch=1, attempt=1, reply="r"), Service.WORKER, *worker)
    driver.now_s = 10.0
    driver.feed(TaskFinished(task=merge, dispatch=1, attempt=1, batches=23_000), Service.WORKER, *worker)
    for record in driver.log:
        meter.on_record(record.envelope, driver.state)
    for batch in (1, 2, 3):
        meter.on_heartbeat(
            Heartbeat(
                service=Service.WORKER,
                name=PodName("worker-0"),
                incarnation=Incarnation(worker[1]),
                time_s=20.0 + batch,
                metrics={"progress": batch},
            )
        )
    assert meter.measured(driver.state, 0.0).working_s == pytest.approx(2.0, abs=0.1), "between the heartbeats"
