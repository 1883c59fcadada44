"""CPU milliseconds of each part of a DeepFM batch: reading, feeding, ids, pull, compiled step, push.

    python benchmarks/batch_cpu.py clicks/train/part-00000.parquet [--batches 180] [--batch_size 512]

The data is what ``elasticdl zoo data deepfm clicks`` wrote. One process executes the parts of a worker one after
another, through the same classes that a job uses; a second process is the ps. Nothing overlaps, so the CPU time of both
processes around each part belongs to that part. Prints one line of JSON: the median and the 10th and 90th percentile of
each part over groups of 20 batches. "beyond the step" is everything except the compiled step.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.data import ReaderOptions
from elasticdl.shared.data.planning import PlannedData, plan_sources
from elasticdl.shared.data.reader import Reader
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.storage import open_store
from elasticdl.shared.wire.server import WireServer
from elasticdl.worker.input.records import TaskRecords
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.ps_client import PsAddress, PsClient, PsDirectory, PushRequest

TOKEN = "benchmark"
GROUP = 20
"""Batches whose CPU time is averaged to one sample: the clock of another process is read through a pipe."""
STEP = "compiled step"
Samples = dict[str, list[float]]


def serve(pipe: Pipe, plan: Plan) -> None:
    """A ps without broker and storage; answers with its CPU seconds until it is told to stop."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    core = PsCore(plan=plan, placement=Placement.even(1), number=0, policy=UpdatePolicy())
    core.start_serving()
    handler = PsHandler(core, Incarnation("ps"))
    server = WireServer(handler, token=TOKEN, identity="ps", on_fatal=lambda _: os._exit(1))
    server.start()
    pipe.send(server.address)
    while pipe.recv() == "cpu":
        pipe.send(time.process_time())
    server.close()


class Clock:
    """CPU seconds of this process and of the ps, added up by part.

    Args:
        pipe: leads to the ps process.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(self, name: str, *, with_ps: bool = False) -> Iterator[None]:
        """Charge the block to a part; ``with_ps``: the CPU of the ps as well, as a part of its own."""
        theirs = self._ps_cpu_s() if with_ps else 0.0
        started = time.process_time()
        yield
        self._spent[name] += time.process_time() - started
        if with_ps:
            self._spent[f"ps: {name}"] += self._ps_cpu_s() - theirs

    def take(self) -> dict[str, float]:
        """Milliseconds per batch of each part since the last call."""
        spent = {name: 1e3 * seconds / GROUP for name, seconds in self._spent.items()}
        self._spent.clear()
        return spent

    def _ps_cpu_s(self) -> float:
        self._pipe.send("cpu")
        return float(self._pipe.recv())


def open_data(data: Path, batch_size: int) -> tuple[Plan, PlannedData, Reader]:
    """The plan of one epoch, and a reader of its records."""
    uri = data.resolve().as_uri()
    store = open_store(uri)
    planned = plan_sources(uri, ReaderOptions(), store)
    plan = Plan(
        sources=planned.sources,
        minibatch_size=batch_size,
        minibatches_per_task=8,
        epochs=1,
        shuffle=Shuffle.RECORDS,
        seed=1,
    )
    reader = Reader(
        store=store, sources=planned.sources, schema=planned.schema, index=lambda number: planned.indices[number]
    )
    return plan, planned, reader


def train(data: Path, batches: int, batch_size: int, model_file: Path) -> Samples:
    """Train on a number of batches; samples of each part in milliseconds per batch."""
    from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
    from elasticdl.worker.model.user.feeder import BatchFeeder
    from elasticdl.worker.model.user.module import load

    plan, planned, reader = open_data(data, batch_size)
    records = TaskRecords(plan=plan, reader=reader, whole_batches=True)
    module = load(ModelFile(path=model_file), {})
    feeder = BatchFeeder(module, "train", planned.schema.metadata)
    example = feeder.feed(records.batch(TaskId(0), 0).records)
    assert example is not None
    runner = ModelRunner(module, example, RunnerSettings(seed=1))

    pipe, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, plan), daemon=True)
    process.start()
    client = connect(pipe.recv(), plan, runner.signature())
    client.initialise(runner.initial_dense())
    clock, samples = Clock(pipe), defaultdict(list)
    places = ((task, batch) for task in plan.task_ids() for batch in range(plan.batches_of(TaskId(task))))
    for number, (task, batch) in zip(range(batches), places, strict=False):
        step(clock, plan, records, feeder, runner, client, TaskId(task), batch)
        if number % GROUP == GROUP - 1:
            for name, value in clock.take().items():
                samples[name].append(value)
    client.close()
    pipe.send("stop")
    process.join()
    return {name: values[1:] for name, values in samples.items()}


def step(
    clock: Clock, plan: Plan, records: Any, feeder: Any, runner: Any, client: PsClient, task: TaskId, batch: int
) -> None:
    """Train on one batch, each part charged to its name."""
    with clock.part("read"):
        raw = records.batch(task, batch)
        fields, checksum = raw.records, raw.checksum
    with clock.part("feed"):
        fed = feeder.feed(fields)
    with clock.part("ids, deduplicated"):
        tables = table_ids(runner, fed, training=True)
    with clock.part("pull", with_ps=True):
        pulled = client.pull({name: ids.unique for name, ids in tables.items()})
    with clock.part(STEP):
        rows = {name: (pulled.rows[name], ids.inverse) for name, ids in tables.items()}
        result = runner.train(fed, pulled.dense, rows, step_seed=batch)
    with clock.part("push", with_ps=True):
        client.push(
            PushRequest(
                task=task,
                batch=batch,
                batches=plan.batches_of(task),
                records=raw.count,
                checksum=checksum,
                dense_gradient=result.dense_gradient,
                statistics_update=result.statistics_update,
                rows={name: (tables[name].unique, values) for name, values in result.row_gradients.items()},
                magnitudes={
                    name: (tables[name].unique[places], values)
                    for name, (places, values) in result.row_magnitudes.items()
                },
            )
        )
        pulled.release()


def connect(address: str, plan: Plan, signature: ModelSignature) -> PsClient:
    """The worker's client of the only ps."""
    places = {PodName("ps-0"): PsAddress(address=address, incarnation=Incarnation("ps"))}
    placement = Placement.even(1)
    return PsClient(
        PsDirectory(placement=lambda: placement, resolve=lambda: places),
        token=TOKEN,
        peer="benchmark",
        plan=plan.fingerprint,
        signature=signature,
    )


def summary(samples: Samples) -> dict[str, list[float]]:
    """Median, 10th and 90th percentile of each part, and of all parts beyond the step."""
    beyond = np.sum([values for name, values in samples.items() if name != STEP], axis=0)
    everything = {**samples, "beyond the step": beyond}
    return {name: [round(float(p), 3) for p in np.percentile(v, (50, 10, 90))] for name, v in everything.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--batches", type=int, default=180)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1, help="of TensorFlow's operations")
    parser.add_argument("--model", type=Path, default=Path(__file__).parent / "deepfm_adagrad.py")
    arguments = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(arguments.threads)
    samples = train(arguments.data, arguments.batches, arguments.batch_size, arguments.model)
    print(json.dumps(summary(samples)))


if __name__ == "__main__":
    main()
