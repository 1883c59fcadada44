"""Training steps of dense models: jobs with AllReduce beside TensorFlow's and PyTorch's strategies, in turns.

    python benchmarks/strategies.py [--models mlp resnet20 transformer] [--groups two one deterministic]
        [--torch PYTHON] [--turns 15] [--seconds 1.5]

``ring``: a job of two workers with ``AllreduceStrategy``. ``mwms``: two workers of ``MultiWorkerMirroredStrategy`` with
the same Keras model. ``ddp``: its twin in PyTorch with ``DistributedDataParallel``, in PYTHON, an interpreter with
PyTorch of its own. ``ring of 1``: a job of one worker; ``loop``: one process that calls Keras' compiled train function.
``exact``: a job with ``--deterministic`` beside the same job without it (``plain``), both of two workers and with
updates of 8 minibatches, so a step of a worker is a quarter of an update.
The processes that compute share the cores: each has half of them as threads, or all. The peers have their data in
memory; the jobs read them from a file.

All of them run at the same time, but only one of them is not suspended (SIGSTOP): each gets ``--seconds`` in turns. So
all have the same share of a machine that others use as well. Where these leave no idle core, only the CPU time says
something: the scheduler gives a process whose work moves between threads more than one that computes in a single one.

A row has steps per second, CPU milliseconds per step of all processes together, and both as ratios to the ring of the
same size: above 1 the ring is better.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from benchmarks.peers.counter import read  # noqa: E402
from benchmarks.thread_cpu import computed, cpu_s, descendants  # noqa: E402

BATCH = {"mlp": 256, "resnet20": 32, "transformer": 32}
"""Records per worker and step."""
PER_TASK = 39
"""Minibatches: two tasks are an epoch of the perceptron."""
RECORDS = 2 * PER_TASK * BATCH["mlp"]
"""All tasks are full: a short one beside a long one in a cohort leaves a worker without work for most of its rounds."""
MICRO_BATCHES = 8
"""Of an update of the jobs with and without ``--deterministic``. An epoch of theirs has as many tasks, or more."""
WORKERS = {"two": 2, "one": 1, "deterministic": 2}
"""By group."""
WARM_UP_STEPS = 30
START_S = 300.0


@dataclass(kw_only=True)
class Contender:
    """Processes that train together.

    Attributes:
        steps: how many they have made so far.
        end: the signal that ends them. TensorFlow takes SIGTERM for a notice of preemption.
    """

    name: str
    processes: Sequence[subprocess.Popen[bytes]]
    steps: Callable[[], int]
    end: signal.Signals = signal.SIGKILL
    seconds: float = 0.0
    began: tuple[int, float] = (0, 0.0)
    ended: tuple[int, float] = (0, 0.0)
    log: Path = field(default_factory=Path)

    def ids(self) -> list[int]:
        """Of all processes."""
        return [one for process in self.processes for one in descendants(process.pid)]

    def signal(self, number: signal.Signals) -> None:
        """Suspend all processes, or let them continue."""
        for one in self.ids():
            with suppress(ProcessLookupError):
                os.kill(one, number)

    def state(self) -> tuple[int, float]:
        """Steps and CPU seconds so far."""
        return self.steps(), sum(sum(cpu_s(process.pid).values()) for process in self.processes)

    def await_steps(self, count: int) -> None:
        """Wait until it has made some steps."""
        end_s = time.monotonic() + START_S
        while self.steps() < count:
            if time.monotonic() > end_s or any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"{self.name} does not train:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def close(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.send_signal(self.end)
        self.signal(signal.SIGCONT)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


class Starter:
    """Starts contenders for one model."""

    def __init__(self, kind: str, group: str, folder: Path, torch: str) -> None:
        self._kind, self._folder, self._torch = kind, folder, torch
        self._data = folder / f"{kind}.npz"
        needed = MICRO_BATCHES * PER_TASK * BATCH[kind] if group == "deterministic" else 0
        write_data(kind, self._data, max(RECORDS, needed))
        # A job divides the cores among its workers in the same way.
        threads = max(1, (os.cpu_count() or 1) // WORKERS[group])
        names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
        quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
        self._environment = os.environ | dict.fromkeys(names, str(threads)) | quiet

    def job(self, name: str, workers: int, *options: str) -> Contender:
        """A job with AllreduceStrategy."""
        runs = self._folder / name
        command = [sys.executable, "-m", "elasticdl.cli.main", "train", f"--training_data={self._data}"]
        command += [f"--model_def={HERE / 'peers/keras_models.py'}", f"--model_params=kind='{self._kind}'"]
        command += [f"--minibatch_size={BATCH[self._kind]}", f"--num_workers={workers}", "--num_epochs=1000"]
        command += ["--distribution_strategy=AllreduceStrategy", "--label=label", "--seed=1"]
        command += [f"--num_minibatches_per_task={PER_TASK}", *options]
        environment = {"ELASTICDL_RUN_DIR": str(runs)}
        job = self._start(name, [command], lambda: computed(runs) // workers, environment)
        job.end = signal.SIGTERM
        return job

    def loop(self) -> Contender:
        """Keras in one process."""
        return self._keras("loop", [[]])

    def mwms(self) -> Contender:
        """MultiWorkerMirroredStrategy with two workers."""
        ports = [str(port) for port in free_ports(2)]
        return self._keras("mwms", [["0", *ports], ["1", *ports]])

    def ddp(self) -> Contender:
        """DistributedDataParallel with two processes."""
        port, counter = str(free_ports(1)[0]), self._folder / "ddp.counter"
        script = [self._torch, str(HERE / "peers/torch_ddp.py"), self._kind, str(self._data), str(BATCH[self._kind])]
        commands = [[*script, str(counter if rank == 0 else os.devnull), str(rank), port, "2"] for rank in range(2)]
        return self._start("ddp", commands, lambda: read(counter), {"PYTHONPATH": ""})

    def _keras(self, name: str, clusters: list[list[str]]) -> Contender:
        counter = self._folder / f"{name}.counter"
        script = [sys.executable, "-m", "benchmarks.peers.keras_loop", self._kind, str(self._data)]
        script += [str(BATCH[self._kind])]
        commands = [
            [*script, str(counter if rank == 0 else os.devnull), *cluster] for rank, cluster in enumerate(clusters)
        ]
        path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        return self._start(name, commands, lambda: read(counter), {"PYTHONPATH": path})

    def _start(
        self, name: str, commands: list[list[str]], steps: Callable[[], int], environment: dict[str, str]
    ) -> Contender:
        log = self._folder / f"{name}.log"
        with log.open("w") as output:
            processes = [
                subprocess.Popen(command, env=self._environment | environment, stdout=output, stderr=output)
                for command in commands
            ]
        return Contender(name=name, processes=processes, steps=steps, log=log)


def write_data(kind: str, path: Path, records: int = RECORDS) -> None:
    """Records of the model's shape, without meaning."""
    chance, shape = np.random.default_rng(0), {"mlp": (429,), "resnet20": (32, 32, 3), "transformer": (64,)}[kind]
    x = (
        chance.integers(0, 4000, (records, *shape))
        if kind == "transformer"
        else chance.normal(size=(records, *shape)).astype(np.float32)
    )
    np.savez(path, x=x, label=chance.integers(0, 10, records))


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def take_turns(contenders: list[Contender], turns: int, seconds: float) -> None:
    """Let each of them run for a while, the others being suspended."""
    for contender in contenders:
        contender.await_steps(WARM_UP_STEPS)
    for contender in contenders:
        contender.signal(signal.SIGSTOP)
        contender.began = contender.state()
    for _ in range(turns):
        for contender in contenders:
            started_s = time.perf_counter()
            contender.signal(signal.SIGCONT)
            time.sleep(seconds)
            contender.signal(signal.SIGSTOP)
            contender.seconds += time.perf_counter() - started_s
    for contender in contenders:
        contender.ended = contender.state()


def report(kind: str, contenders: list[Contender]) -> None:
    """A row for each; the first one is the ring."""
    figures = []
    for one in contenders:
        steps = one.ended[0] - one.began[0]
        figures.append((steps / one.seconds, (one.ended[1] - one.began[1]) / steps))
    for one, (rate, cpu) in zip(contenders, figures, strict=True):
        row = f"{kind:12} {one.name:10} {rate:8.2f} {1e3 * cpu:10.1f}"
        if one is not contenders[0]:
            row += f" {figures[0][0] / rate:12.2f} {cpu / figures[0][1]:12.2f}"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(BATCH), choices=list(BATCH))
    parser.add_argument("--groups", nargs="+", default=list(WORKERS), choices=list(WORKERS))
    parser.add_argument("--torch", default="", metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    print("model        with        steps/s  CPU ms/step  ring/it steps  it/ring CPU")
    for kind in arguments.models:
        for group in arguments.groups:
            with tempfile.TemporaryDirectory() as name:
                starter = Starter(kind, group, Path(name), arguments.torch)
                contenders: list[Contender] = []
                try:
                    if group == "two":
                        contenders.append(starter.job("ring", 2))
                        contenders.append(starter.mwms())
                        if arguments.torch:
                            contenders.append(starter.ddp())
                    elif group == "deterministic":
                        waits = f"--grads_to_wait={MICRO_BATCHES}"
                        contenders += [starter.job("exact", 2, waits, "--deterministic")]
                        contenders += [starter.job("plain", 2, waits)]
                    else:
                        contenders += [starter.job("ring of 1", 1), starter.loop()]
                    take_turns(contenders, arguments.turns, arguments.seconds)
                    report(kind, contenders)
                finally:
                    for contender in contenders:
                        contender.close()


if __name__ == "__main__":
    main()
