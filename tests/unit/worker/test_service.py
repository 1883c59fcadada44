"""A whole worker: real TensorFlow, real sockets to a real ps, the broker in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.deadline import DEADLINE_S

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.data import IndexStore, ReaderOptions, plan_sources
from elasticdl.shared.data.schema import options_of
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import (
    Envelope,
    Event,
    FailureKind,
    JobSubmitted,
    TaskFailed,
    TaskFinished,
    TaskTaken,
    WorkerFailed,
    WorkerStarted,
    WorkerStopped,
    one_by_one,
)
from elasticdl.shared.messages.registers import PsRegister, encode_register
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, JobId, PodName, Purpose, Service, TaskId, new_incarnation
from elasticdl.shared.process.exit_codes import EXIT_REFUSED
from elasticdl.shared.process.settings import WorkerSettings
from elasticdl.shared.storage import open_store
from elasticdl.shared.wire.server import WireServer
from elasticdl.worker.ps_client import PsAddress, PsClient, PsDirectory
from elasticdl.worker.service import Worker

pytestmark = pytest.mark.tensorflow
TOKEN = "secret"
JOB = JobId("job-1")
MODEL = """
import keras
import tensorflow as tf

from elasticdl.layers import Embedding


def custom_model(units=4):
    features = {"id": keras.Input((1,), name="id", dtype="int64"), "x": keras.Input((1,), name="x")}
    embedded = keras.layers.Flatten()(Embedding(8, input_dim=50, name="ids")(features["id"]))
    hidden = keras.layers.Dense(units, activation="relu")(keras.layers.Concatenate()([embedded, features["x"]]))
    return keras.Model(features, keras.layers.Dense(1)(keras.layers.Dropout(0.2)(hidden)))


def loss(labels, predictions):
    if BAD_LOSS:
        raise ValueError("a loss that raises")
    return tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - predictions))


def optimizer():
    return keras.optimizers.Adam(0.05)


def feed_batch(records, mode, metadata):
    features = {"id": records["id"][:, None], "x": tf.cast(records["x"][:, None], tf.float32)}
    return features, tf.cast(records["y"], tf.float32)[:, None]


def eval_metrics_fn():
    return {"mse": keras.metrics.MeanSquaredError()}


BAD_LOSS = False
"""


@dataclass
class Observer:
    """Opens the ps once it is initialised, as its shell does after snapshot 0."""

    happened: threading.Event = field(default_factory=threading.Event)

    def initialised(self) -> None:
        self.happened.set()

    def serving(self) -> None: ...

    def stepped(self, step: int) -> None: ...


class Ps:
    """One ps behind a socket."""

    def __init__(self, plan: Plan) -> None:
        self.incarnation = new_incarnation()
        self.fatal: list[BaseException] = []
        self.observer = Observer()
        self.core = PsCore(
            plan=plan, placement=Placement.even(1), number=0, policy=UpdatePolicy(), observer=self.observer
        )
        self.server = WireServer(
            PsHandler(self.core, self.incarnation), token=TOKEN, identity=self.incarnation, on_fatal=self.fatal.append
        )
        self.server.start()
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        if self.observer.happened.wait(DEADLINE_S):
            self.core.start_serving()

    def close(self) -> None:
        self.server.close()
        assert self.fatal == []


@dataclass
class Job:
    """A job with one worker on a thread."""

    spec: JobSpec
    folder: Path
    loop: LoopThread
    bus: Bus
    ps: Ps
    staleness: int
    exit_codes: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    appended: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.loop.call(self.bus.log.append(self.envelope(JobSubmitted(spec=self.spec))))
        self.loop.spawn(self.follow())
        name = PodName("worker-0")
        settings = WorkerSettings(nats_url="nats://nobody", job=JOB, pod=name, token=TOKEN, idle_poll_s=0.05)
        self.worker = Worker(
            settings=replace(settings, staleness=self.staleness),
            incarnation=new_incarnation(),
            spec=self.loop.call(read_spec(self.bus.log)),
            bus=self.bus,
            loop=self.loop,
            environment={"ELASTICDL_RUNNING_BATCHES": str(self.folder / "running_batches")},
        )
        self.thread = threading.Thread(target=self.live, daemon=True)

    def envelope(self, event: Event) -> Envelope:
        name, life = PodName("launcher"), Incarnation("f00d")
        return Envelope(service=Service.LAUNCHER, name=name, incarnation=life, number=1, time_s=0.0, event=event)

    async def follow(self) -> None:
        async for record in self.bus.log.read(0):
            with self.appended:
                self.events.append(record.envelope.event)
                self.appended.notify_all()

    def live(self) -> None:
        self.exit_codes.append(self.worker.run())

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for event in self.events for one in one_by_one(event) if isinstance(one, kind)]

    def wait(self, condition: Callable[[], object]) -> None:
        with self.appended:
            assert self.appended.wait_for(condition, DEADLINE_S), self.events

    def publish(self, purpose: Purpose, number: int = 0, **facts: Any) -> None:
        message = TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=1, term=1, **facts)
        self.loop.call(self.bus.tasks.publish([(message, False)]))

    def start(self) -> None:
        self.thread.start()
        register = PsRegister(address=self.ps.server.address, incarnation=self.ps.incarnation)
        self.loop.call(self.bus.registers.write("ps-0", encode_register(register), after=0))

    def train(self) -> None:
        for task in self.spec.plan.task_ids():
            self.publish(Purpose.TRAIN, task)
        self.start()
        self.wait(lambda: len(self.finished(Purpose.TRAIN)) == self.spec.plan.tasks)

    def finished(self, purpose: Purpose) -> list[TaskFinished]:
        return [event for event in self.of(TaskFinished) if event.task.purpose is purpose]

    def end(self) -> None:
        self.worker.stop("test")
        self.thread.join(30)
        self.ps.close()
        self.loop.stop()


MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    jobs: list[Job] = []

    def make(
        *, model: str = MODEL, output: bool = False, staleness: int = 0, prefetch: int = 2, eager: bool = False
    ) -> Job:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        (folder / "model.py").write_text(model)
        random = np.random.default_rng(1)
        rows = [f"{random.integers(50)},{random.normal():.5f},{random.normal():.5f}" for _ in range(60)]
        (folder / "data.csv").write_text("\n".join(["id,x,y", *rows]) + "\n")
        storage = (folder / "storage").as_uri()
        data = plan_sources(str(folder / "data.csv"), ReaderOptions(), open_store(storage))
        metadata = data.schema.metadata
        data_spec = DataSpec(format="csv", column_names=metadata.column_names, column_types=metadata.column_types)
        IndexStore.of_job(storage, data.sources, options_of(data_spec)).save(data.indices)
        plan = Plan(
            sources=data.sources,
            minibatch_size=8,
            minibatches_per_task=2,
            epochs=2,
            shuffle=Shuffle.RECORDS,
            seed=11,
        )
        validation = replace(plan, minibatches_per_task=4, epochs=1, shuffle=Shuffle.NONE)
        spec = JobSpec(
            job=JOB,
            created_s=0.0,
            plan=plan,
            checksum=0,
            data=data_spec,
            validation=validation,
            validation_data=data_spec,
            model=ModelSpec(path=str(folder / "model.py"), symbol="custom_model", params={"units": "5"}, eager=eager),
            output=(folder / "output").as_uri() if output else "",
            storage=storage,
            prefetch_batches=prefetch,
        )
        loop = LoopThread()

        async def connect() -> Bus:
            return MemoryBroker().connect()

        jobs.append(Job(spec, folder, loop, loop.call(connect()), Ps(plan), staleness))
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


def weights(job: Job) -> list[bytes]:
    """Everything that the ps holds, bit for bit."""
    share = job.ps.core.shard
    assert share is not None
    place = PsAddress(address=job.ps.server.address, incarnation=job.ps.incarnation)
    client = PsClient(
        PsDirectory(placement=lambda: Placement.even(1), resolve=lambda: {PodName("ps-0"): place}),
        token=TOKEN,
        peer="test",
        plan=job.spec.plan.fingerprint,
        signature=share.signature,
    )
    (table,) = share.signature.tables
    pulled = client.pull({table.name: np.arange(table.input_dim)})
    found = [pulled.dense.tobytes(), pulled.rows[table.name].tobytes()]
    pulled.release()
    client.close()
    return found


def test_a_worker_trains_evaluates_merges_and_exports(make_job: MakeJob) -> None:
    job = make_job(output=True)
    job.train()
    share = job.ps.core.shard
    assert share is not None
    (group,) = share.groups
    assert list(group.ledger.missing(job.spec.plan.tasks)) == []
    assert (group.ledger.step, group.ledger.records) == (job.spec.plan.batches, 120)
    (started,) = job.of(WorkerStarted)
    assert any("ids" in note for note in started.notes)

    job.ps.core.open_pin(3)
    assert job.spec.validation is not None
    for number in range(job.spec.validation.tasks):
        job.publish(Purpose.EVALUATE, 6 + number, evaluation=3)
    job.wait(lambda: len(job.finished(Purpose.EVALUATE)) == 2)
    states = job.finished(Purpose.EVALUATE)
    summed = {
        name: tuple(
            (np.frombuffer(one, "<f8") + np.frombuffer(other, "<f8")).tobytes()
            for one, other in zip(states[0].states[name], states[1].states[name], strict=True)
        )
        for name in states[0].states
    }
    job.publish(Purpose.MERGE, 3, evaluation=3, states=summed)
    job.wait(lambda: job.finished(Purpose.MERGE))
    results = job.finished(Purpose.MERGE)[0].results
    assert set(results) == {"loss", "mse"}
    assert results["loss"] == pytest.approx(results["mse"], rel=1e-5)

    job.publish(Purpose.EXPORT, 0)
    job.wait(lambda: job.finished(Purpose.EXPORT))
    assert (job.folder / "output" / "model.keras").is_file()
    assert (job.folder / "output" / "saved_model" / "saved_model.pb").is_file()

    job.worker.stop("SIGTERM")
    job.wait(lambda: job.of(WorkerStopped))
    job.thread.join(30)
    assert job.exit_codes == [0]


def test_user_code_that_raises_in_the_loss_is_refused_at_start(make_job: MakeJob) -> None:
    job = make_job(model=MODEL.replace("BAD_LOSS = False", "BAD_LOSS = True"))
    with capture_logs() as logged:
        job.start()
        job.wait(lambda: job.of(WorkerFailed))
        job.thread.join(30)
    reasons = [line["reason"] for line in logged if line["event"] == "the worker can't continue"]
    assert len(reasons) == 1 and "a loss that raises" in reasons[0], logged
    (failed,) = job.of(WorkerFailed)
    assert failed.kind is FailureKind.USER_CODE
    assert "a loss that raises" in failed.message
    assert "model.py" in failed.traceback
    assert job.exit_codes == [EXIT_REFUSED]
    assert job.of(TaskFailed) == []


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_seeded_run_of_one_worker_is_bit_identical_whatever_it_reads_ahead(make_job: MakeJob, staleness: int) -> None:
    one, other = make_job(staleness=staleness, prefetch=1), make_job(staleness=staleness, prefetch=5)
    one.train()
    for number in range(3):  # No such pin: dropped between two batches.
        other.publish(Purpose.EVALUATE, number, evaluation=1)
    other.train()
    assert weights(one) == weights(other)


HOLDS_STEPS = """
import pathlib, time

_plain_loss = loss


def loss(labels, predictions):
    while pathlib.Path(__file__).with_name("hold").exists():
        time.sleep(0.01)
    return _plain_loss(labels, predictions)
"""


def test_a_worker_reads_as_many_batches_ahead_as_the_job_says(make_job: MakeJob) -> None:
    job = make_job(model=MODEL + HOLDS_STEPS, prefetch=5, eager=True)
    job.start()
    job.wait(lambda: job.of(WorkerStarted))
    (job.folder / "hold").touch()
    for task in job.spec.plan.task_ids():
        job.publish(Purpose.TRAIN, task)
    job.wait(lambda: len(job.of(TaskTaken)) == 3)  # 2 batches each: one is being computed, five are ahead.
    assert job.finished(Purpose.TRAIN) == []
    (job.folder / "hold").unlink()
    job.wait(lambda: len(job.finished(Purpose.TRAIN)) == job.spec.plan.tasks)


def test_a_feed_that_raises_names_the_record_and_the_worker_goes_on(make_job: MakeJob) -> None:
    check = "    tf.debugging.assert_less(records['id'], tf.constant(48, tf.int64))\n    features = {"
    before, _, after = MODEL.rpartition("    features = {")
    job = make_job(model=before + check + after)
    records = (job.folder / "data.csv").read_text().splitlines()[1:]
    (bad,) = [number for number, record in enumerate(records) if record.startswith("48,")]
    first, second = (task for task in job.spec.plan.task_ids() if bad in numbers(job.spec.plan, task))
    healthy = job.spec.plan.tasks - 2
    for task in job.spec.plan.task_ids():
        job.publish(Purpose.TRAIN, task)
    job.start()
    job.wait(lambda: len(job.finished(Purpose.TRAIN)) == healthy and len(job.of(TaskFailed)) >= 2)
    assert {failed.task.number for failed in job.of(TaskFailed)} <= {first, second}
    for failed in job.of(TaskFailed):
        assert failed.kind is FailureKind.USER_CODE
        assert failed.message.startswith(f"record {bad} (from 0) of {job.folder}")
        assert "data.csv: feed_batch() of model.py raised" in failed.message
        assert failed.first_record <= bad < failed.last_record


def numbers(plan: Plan, task: TaskId) -> range:
    (shard,) = plan.shards(task)
    return range(shard.start, shard.end)


def test_data_that_changed_is_refused_at_start(make_job: MakeJob) -> None:
    job = make_job()
    with (job.folder / "data.csv").open("a") as file:
        file.write("1,2,3\n")
    job.start()
    job.wait(lambda: job.of(WorkerFailed))
    (failed,) = job.of(WorkerFailed)
    assert failed.kind is FailureKind.DATA
    assert "data.csv changed since the job was planned" in failed.message
