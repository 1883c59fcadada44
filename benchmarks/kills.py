"""What each kind of death costs a DeepFM job: SIGKILL of a worker, the ps, the master and nats-server in turn.

    python benchmarks/kills.py clicks [--rounds 5] [--pause 8]

``clicks`` is what ``elasticdl zoo data deepfm clicks`` wrote. While the job runs (1 ps, 2 workers, batches of 512), the
benchmark asks the ps for its step every few milliseconds, like a worker's pull of nothing, and reads the job's event
log. Printed are medians and largest values over the rounds, and the closing report's audit and goodput.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.events import (
    CommandsRan,
    Decided,
    Envelope,
    PodExited,
    PsStarted,
    TasksTaken,
    TaskTaken,
    TermStarted,
    one_by_one,
)
from elasticdl.shared.names import JobId, Service
from elasticdl.shared.pod_instances import pid_of
from elasticdl.shared.process.settings import variable
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.client import WireClient
from elasticdl.shared.wire.message_codec import decode_reply, encode_request
from elasticdl.shared.wire.messages import Pull, PullReply
from elasticdl.views.reading import Reading, following

ELASTICDL = [sys.executable, "-m", "elasticdl.cli"]
TOKEN = secrets.token_hex(16)
"""The secret of the job's processes, so that this one may ask the ps."""
POLL_S = 0.005
PROOF = {"worker": (PodExited,), "ps": (PsStarted,), "master": (TermStarted,), "nats-server": (TaskTaken, TasksTaken)}
"""Who is killed, and the event that says that its death is over."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The ps' step as seen at a time (seconds since the epoch)."""

    time_s: float
    incarnation: str
    step: int


@dataclass(slots=True)
class Watch:
    """Follows a job from outside: its log in an event loop of its own, its ps' step over the wire."""

    run: RunDirectory
    state: State = field(default_factory=State)
    events: list[Envelope] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Read the log until the job is over; the broker may die and come back meanwhile."""
        with contextlib.suppress(ElasticDLError):
            asyncio.run(self._follow())

    async def _follow(self) -> None:
        async with open_bus(self.run) as bus:
            async for record in following(bus.log, Reading(state=self.state)):
                self.events.append(record.envelope)
                if self.over.is_set() or self.state.is_final:
                    return

    def poll(self) -> None:
        """Ask the ps for its step, again and again."""
        pool = BufferPool()
        while not self.over.is_set():
            with contextlib.suppress(ElasticDLError, OSError, KeyError):
                self._poll_one_life(pool)
            time.sleep(POLL_S)

    def _poll_one_life(self, pool: BufferPool) -> None:
        started = self.last(PsStarted)
        serving = [pod for pod in self.state.running(Service.PS) if started and pod.incarnation == started.incarnation]
        if started is None or not serving:
            return
        assert isinstance(started.event, PsStarted)
        client = WireClient(started.event.address, token=TOKEN, peer="benchmark", pool=pool)
        question = encode_request(
            Pull(plan=self.state.plan.fingerprint, placement_version=1, pin=0, dense=False, tables=())
        )
        try:
            while not self.over.is_set():
                frame = client.request(*question)
                reply, incarnation = decode_reply(frame.meta, frame.tensors)
                frame.release()
                if isinstance(reply, PullReply):
                    self.note(Sample(time.time(), incarnation, reply.step))
                time.sleep(POLL_S)
        finally:
            client.close()

    def note(self, sample: Sample) -> None:
        """Keep a sample that says something new."""
        last = self.samples[-1] if self.samples else None
        if last is None or (last.incarnation, last.step) != (sample.incarnation, sample.step):
            self.samples.append(sample)

    def last(self, kind: type) -> Envelope | None:
        """The newest event of a kind."""
        return next((each for each in reversed(self.events) if isinstance(each.event, kind)), None)

    def since(self, time_s: float, *kinds: type) -> Iterator[Envelope]:
        """Events of some kinds that were made after a time, oldest first."""
        return (each for each in list(self.events) if each.time_s > time_s and isinstance(each.event, kinds))

    def progress(self, since_s: float) -> Iterator[float]:
        """Times at which a step was seen that had been absorbed just then; a restored one does not count."""
        for before, after in itertools.pairwise(self.samples):
            if after.time_s >= since_s and before.incarnation == after.incarnation and after.step > before.step:
                yield after.time_s

    def longest_gap_s(self, start_s: float, end_s: float) -> float:
        """Longest time without an absorbed push, seconds."""
        times = [start_s, *(each for each in self.progress(start_s) if each < end_s), end_s]
        return max(after - before for before, after in itertools.pairwise(times))


def kill(watch: Watch, kind: str) -> float:
    """SIGKILL one process of a kind; returns when."""
    if kind in ("master", "nats-server"):
        pid = watch.run.read().pids[kind]
    else:
        pid = pid_of(min(watch.state.running(Service(kind)), key=lambda pod: pod.incarnation).instance)
    killed_s = time.time()
    os.kill(pid, signal.SIGKILL)
    return killed_s


def measure(watch: Watch, kind: str, killed_s: float, end_s: float) -> dict[str, float]:
    """What one death cost, in seconds unless its name says otherwise."""
    found = {"longest gap between applied pushes": watch.longest_gap_s(killed_s, end_s)}
    if kind == "worker":
        lost = next(each for each in watch.since(killed_s, PodExited))
        found["its death on the log after"] = lost.time_s - killed_s
        ran = next(watch.since(lost.time_s, Decided, CommandsRan), None)
        found["its tasks given back after"] = ran.time_s - killed_s if ran else float("nan")
        again = (each for each in watch.since(killed_s, TaskTaken, TasksTaken) if is_repeated(each))
        found["the first of them taken again after"] = next((each.time_s - killed_s for each in again), float("nan"))
    if kind == "ps":
        restarted = next(watch.since(killed_s, PsStarted))
        assert isinstance(restarted.event, PsStarted)
        found["restored after"] = restarted.time_s - killed_s
        first = next(each for each in watch.progress(restarted.time_s))
        found["first push applied again after"] = first - killed_s
        before = next(each for each in reversed(watch.samples) if each.time_s <= killed_s)
        found["batches to recompute"] = before.step - sum(each.ledger.step for each in restarted.event.ledgers)
    if kind == "master":
        found["back on the log after"] = next(watch.since(killed_s, TermStarted)).time_s - killed_s
    if kind == "nats-server":
        found["first event after"] = next(watch.since(killed_s, TaskTaken, TasksTaken)).time_s - killed_s
    return found


def is_repeated(taken: Envelope) -> bool:
    """Whether one of the tasks was taken before."""
    return any(isinstance(one, TaskTaken) and one.attempt > 1 for one in one_by_one(taken.event))


def start(data: Path, folder: Path, epochs: int) -> tuple[subprocess.Popen[bytes], RunDirectory]:
    """Start the job and wait for its folder."""
    command = [
        *ELASTICDL,
        "train",
        "--model_def=deepfm.custom_model",
        f"--training_data={data}/train",
        f"--validation_data={data}/test",
        "--minibatch_size=512",
        f"--num_epochs={epochs}",
        f"--run_dir={folder}/jobs",
        f"--report={folder}/report.json",
    ]
    environment = {**os.environ, variable("token"): TOKEN}
    job = subprocess.Popen(command, stdout=(folder / "job.log").open("w"), stderr=subprocess.STDOUT, env=environment)
    while not any((folder / "jobs").glob("*/job.json")):
        time.sleep(0.1)
    (path,) = (folder / "jobs").iterdir()
    return job, RunDirectory(folder / "jobs", JobId(path.name))


def rounds(watch: Watch, count: int, pause_s: float) -> dict[str, list[dict[str, float]]]:
    """Kill one of each kind per round; what was found, by kind."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in PROOF}
    for _ in range(count):
        for kind in PROOF:
            killed_s = kill(watch, kind)
            time.sleep(pause_s)
            while not any(watch.since(killed_s, *PROOF[kind])) or not any(watch.progress(killed_s + pause_s)):
                time.sleep(POLL_S)
            found[kind].append(measure(watch, kind, killed_s, time.time()))
            shown = ", ".join(f"{name} {value:.2f}" for name, value in found[kind][-1].items())
            print(f"  {kind}: {shown}", flush=True)
    return found


def main() -> None:
    """Run the job, kill, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=8.0, help="seconds from one kill to the next")
    parser.add_argument("--epochs", type=int, default=20, help="enough that the job outlives the kills")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job, run = start(arguments.data, folder, arguments.epochs)
        while not run.read().nats_url:
            time.sleep(0.1)
        watch = Watch(run)
        threads = [threading.Thread(target=each, daemon=True) for each in (watch.follow, watch.poll)]
        for thread in threads:
            thread.start()
        while next(watch.progress(0.0), None) is None:
            time.sleep(0.1)
        time.sleep(arguments.pause)
        calm_s = time.time()
        print(f"undisturbed: longest gap {watch.longest_gap_s(calm_s - arguments.pause / 2, calm_s):.2f} s")
        try:
            found = rounds(watch, arguments.rounds, arguments.pause)
        except BaseException:
            job.send_signal(signal.SIGINT)
            raise
        finally:
            watch.over.set()
            job.wait()
        report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    print(f"{'':<14}{'':<38}{'median':>8}{'largest':>9}")
    for kind, each in found.items():
        for what in each[0]:
            values = [one[what] for one in each]
            print(f"{kind:<14}{what:<38}{statistics.median(values):>8.2f}{max(values):>9.2f}")
    audit = report["audit"]
    print(f"audit exact: {audit['exact']}, repaired {audit['repaired']}, goodput {report['goodput']}")
    print(f"batches computed {report['batches_computed']}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
