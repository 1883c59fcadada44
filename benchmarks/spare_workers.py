"""How long a place in a ring stays empty after SIGKILL of a worker, with and without a spare worker, in turns.

    python benchmarks/spare_workers.py [--rounds 3] [--kills 3]

A small dense model on two workers of this machine, with AllreduceStrategy. In each round a job with a spare and one
without run one after the other. In each job, members that do not lead and those that do are killed in turns, each when
all workers train and the spare, if there is one, waits. Two times are measured from the kill, by the job's log: until a
generation of the ring has two members again, and until a process that took part in it first has finished a task. Both
kinds of jobs fork workers from a process that has imported TensorFlow, as all jobs on one machine do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.commands import FormRing
from elasticdl.shared.messages.events import Decided, Envelope, TaskFinished, TasksFinished
from elasticdl.shared.names import JobId, Service
from elasticdl.shared.pod_instances import pid_of
from elasticdl.views.reading import Reading, following

WORKERS = 2
RECORDS, BATCH = 20_000, 32
MODEL = """
import keras


def custom_model():
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(64, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
    return model
"""


@dataclass(slots=True)
class Watch:
    """Follows a job's log."""

    run: RunDirectory
    state: State = field(default_factory=State)
    records: list[tuple[float, Envelope]] = field(default_factory=list)
    """With the time at which each was read."""

    def follow(self) -> None:
        """Read until the job ends."""
        with contextlib.suppress(ElasticDLError):
            asyncio.run(self._follow())

    async def _follow(self) -> None:
        async with open_bus(self.run) as bus:
            async for record in following(bus.log, Reading(state=self.state)):
                self.records.append((time.time(), record.envelope))
                if self.state.is_final:
                    return

    def since(self, first: int) -> Iterator[tuple[float, Envelope]]:
        """Records from a position on, as they come."""
        while True:
            while first < len(self.records):
                yield self.records[first]
                first += 1
            time.sleep(0.002)

    @property
    def is_ready(self) -> bool:
        """Whether all workers train, and all spares wait."""
        phases = [pod.phase for pod in list(self.state.pods.values()) if pod.service is Service.WORKER]
        return (
            len(self.state.ring.members) == WORKERS
            and phases.count(PodPhase.RUNNING) == WORKERS
            and phases.count(PodPhase.WAITING) == (self.state.spec.spare_workers if self.state.spec else 0)
        )


def measure(watch: Watch, *, leads: bool) -> tuple[float, float]:
    """Kill a member; returns the seconds until the ring is whole, and until the new member has finished a task."""
    before = {member.incarnation for member in watch.state.ring.members}
    victim = watch.state.ring.members[0 if leads else -1].worker
    pid, first, killed_s = pid_of(watch.state.pods[victim].instance), len(watch.records), time.time()
    os.kill(pid, signal.SIGKILL)
    whole_s, joined = 0.0, ""
    for read_s, envelope in watch.since(first):
        match envelope.event:
            case Decided(commands=commands) if not whole_s:
                for command in commands:
                    if isinstance(command, FormRing) and len(command.members) == WORKERS:
                        whole_s = read_s - killed_s
                        (joined,) = {one.incarnation for one in command.members} - before
            case TaskFinished() | TasksFinished() if whole_s and envelope.incarnation == joined:
                return whole_s, read_s - killed_s
            case _:
                pass
    raise AssertionError("the job has ended")


def run_job(folder: Path, spares: int, kills: int) -> list[tuple[float, float]]:
    """A job in which workers are killed."""
    (folder / "model.py").write_text(MODEL)
    rows = (f"{n % 7},{n % 11},{n % 13},{n % 5}" for n in range(RECORDS))
    (folder / "train.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    flags = {
        "model_def": "model.py", "training_data": "train.csv", "label": "y", "num_epochs": 1000,
        "distribution_strategy": "AllreduceStrategy", "minibatch_size": BATCH, "num_minibatches_per_task": 4,
        "num_workers": WORKERS, "spare_workers": spares, "run_dir": "jobs",
    }  # fmt: skip
    command = [sys.executable, "-m", "elasticdl.cli", "train", *(f"--{name}={value}" for name, value in flags.items())]
    with (folder / "job.log").open("w") as log:
        job = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: any((folder / "jobs").glob("*/job.json")), job)
        (path,) = (folder / "jobs").iterdir()
        run = RunDirectory(folder / "jobs", JobId(path.name))
        wait_until(lambda: bool(run.read().nats_url), job)
        watch = Watch(run)
        threading.Thread(target=watch.follow, daemon=True).start()
        found = []
        for number in range(kills):
            wait_until(lambda: watch.is_ready, job)
            time.sleep(1.0)
            found.append(measure(watch, leads=bool(number % 2)))
        return found
    finally:
        for _ in range(2):  # The second one kills what is left.
            job.send_signal(signal.SIGINT)
            time.sleep(0.5)
        job.wait()


def wait_until(is_so: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
    """Wait for something that a running job will do."""
    while not is_so():
        if job.poll() is not None:
            raise SystemExit("the job has ended")
        time.sleep(0.05)


def main() -> None:
    """Run the jobs in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[int, list[tuple[float, float]]] = {1: [], 0: []}
    for _ in range(arguments.rounds):
        for spares in found:
            with tempfile.TemporaryDirectory() as name:
                times = run_job(Path(name), spares, arguments.kills)
            shown = ", ".join(f"{whole_s:.2f} and {task_s:.2f} s" for whole_s, task_s in times)
            print(f"  {spares} spares: {shown}; load {os.getloadavg()[0]:.1f}", flush=True)
            found[spares] += times
    for place, what in enumerate(("the ring is whole", "the new member has finished a task")):
        for spares, times in found.items():
            values = [each[place] for each in times]
            print(f"{what}, {spares} spares: median {statistics.median(values):.2f} s, most {max(values):.2f} s")


if __name__ == "__main__":
    main()
