"""From the command to the first applied gradient: the handwritten digits with 2 workers, 1 ps, master and nats-server.

    python benchmarks/start_up.py [--runs 3] [--workers 2]

Prints when what was on the event log (medians, seconds after the command was given) and what each process had used of
the processor when a job of 16 batches had ended. Tasks have one batch, so the first finished one is the first gradient
that a ps has applied, a few milliseconds later. The first run fills caches and does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.shared.bus.reading import read_present
from elasticdl.shared.messages.events import (
    JobSubmitted,
    LogRecord,
    ModelInitialised,
    PodStarted,
    PsStarted,
    TaskFinished,
    TasksFinished,
    TermStarted,
    WorkerStarted,
)
from elasticdl.shared.names import JobId, Service

ELASTICDL = (sys.executable, "-m", "elasticdl.cli")
BATCHES = 16


def moment(record: LogRecord) -> str | None:
    """What a record says about the start of a job."""
    match record.envelope.event:
        case JobSubmitted():
            return "job on the log"
        case TermStarted():
            return "master started"
        case PodStarted(service=Service.PS):
            return "ps process started"
        case PsStarted():
            return "ps serves"
        case PodStarted(service=Service.WORKER):
            return "first worker process started"
        case WorkerStarted():
            return "first worker has built its model"
        case ModelInitialised():
            return "ps has its first snapshot"
        case TaskFinished() | TasksFinished():
            return "first gradient applied"
        case _:
            return None


def train(folder: Path, workers: int) -> tuple[dict[str, float], dict[str, float]]:
    """One job; (moment -> seconds after the command, process -> CPU seconds)."""
    report = folder / "report.json"
    command = [
        *ELASTICDL,
        "train",
        "--model_def=mnist_functional_api.custom_model",
        f"--training_data={folder / 'mnist' / 'train'}",
        "--num_minibatches_per_task=1",
        f"--max_step={BATCHES}",
        f"--num_workers={workers}",
        f"--run_dir={folder / 'jobs'}",
        f"--report={report}",
    ]
    given_s = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    facts = json.loads(report.read_text())
    moments: dict[str, float] = {}
    for record in asyncio.run(read_log(RunDirectory(folder / "jobs", JobId(facts["job"])))):
        name = moment(record)
        if name is not None:
            moments.setdefault(name, record.envelope.time_s - given_s)
    return moments, {name: usage["cpu_s"] for name, usage in facts["services"].items()}


async def read_log(run: RunDirectory) -> list[LogRecord]:
    async with open_bus(run) as bus:
        return await read_present(bus.log)


def print_medians(title: str, unit: str, runs: list[dict[str, float]]) -> None:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, value in run.items():
            values[name].append(value)
    print(f"{title:34} {'median':>7} {'least':>7} {'most':>7}  {unit}")
    for name, measured in sorted(values.items(), key=lambda item: statistics.median(item[1])):
        print(f"{name:34} {statistics.median(measured):7.2f} {min(measured):7.2f} {max(measured):7.2f}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*ELASTICDL, "zoo", "data", "mnist", str(folder / "mnist")], check=True, capture_output=True)
        train(folder, arguments.workers)
        runs = [train(folder, arguments.workers) for _ in range(arguments.runs)]
    print(f"{arguments.runs} runs, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}\n")
    print_medians("moment", "seconds after the command", [moments for moments, _ in runs])
    print_medians("process", "CPU seconds of the whole job", [cpu for _, cpu in runs])
    total = statistics.median(sum(cpu.values()) for _, cpu in runs)
    print(f"{'all':34} {total:7.2f}")


if __name__ == "__main__":
    main()
