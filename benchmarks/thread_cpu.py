"""CPU milliseconds per batch of every thread of a DeepFM job, from /proc, without its start and its end.

    python benchmarks/thread_cpu.py clicks/train [--workers 1] [--batch_size 512] [--tree FOLDER]
        [--option=--use_async=false]

The data is what ``elasticdl zoo data deepfm clicks`` wrote. The job runs as a user would start it. The benchmark reads
the CPU time of all its threads once the workers have computed ``--warm_up`` batches, and again ``--batches`` later.
TensorFlow's ``tf_Compute`` threads execute the compiled step (and the small functions of feed and ids); everything
else is "beyond the step". ``--tree`` runs the command line of another checkout (with a ``.venv``), to compare two
versions in turns. ``--option`` passes an option on to ``elasticdl train``. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
POLL_S = 0.05
_COUNT = struct.Struct("<Q")
"""The last field of an older worker's file of running batches: how many it has computed."""
_HEAD = re.compile(rb"^ *(\d+) batches computed")
"""The first line of a worker's file of running batches."""
Thread = tuple[int, int]
"""Process and thread id."""


def descendants(root: int) -> list[int]:
    """Ids of a process and of all that it started, directly or not."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children[int(fields[1])].append(int(folder.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children[found[-1]]
    return found


def cpu_s(root: int) -> dict[Thread, float]:
    """CPU seconds of each thread below a process."""
    found = {}
    for process in descendants(root):
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found[process, int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
    return found


def names(threads: dict[Thread, float]) -> dict[Thread, str]:
    """``service/thread`` of each thread; the name of a process is that of the most telling of its threads."""
    own: dict[int, dict[int, str]] = defaultdict(dict)
    for process, thread in threads:
        try:
            own[process][thread] = Path(f"/proc/{process}/task/{thread}/comm").read_text().strip()
        except OSError:
            continue
    labels = {}
    for process, threads_of in own.items():
        service = _service(Path(f"/proc/{process}/cmdline").read_text())
        for thread, name in threads_of.items():
            labels[process, thread] = (
                f"{service}/{'main' if thread == process else re.sub(r'[-_:][0-9.:]*$', '', name)}"
            )
    return labels


def _service(command: str) -> str:
    if "cli.main" in command and "fork_server" not in command:
        return "launcher"
    if "nats-server" in command:
        return "nats-server"
    for service in ("master", "worker", "ps"):
        if command.startswith(f"elasticdl {service}"):
            return service
        if f"elasticdl.{service}.main" in command:
            return f"{service}'s fork server"
    return "other"


def computed(folder: Path) -> int:
    """Batches that all workers of a job have computed so far, from their files of running batches."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            path = Path(parent, name)
            try:
                data = path.read_bytes() if path.stat().st_size < 1 << 12 else b""
            except OSError:
                continue
            if (head := _HEAD.match(data)) is not None:
                total += int(head[1])
            elif data.startswith((b"EDLbatch", b"EDLhand")):  # As checkouts before the text wrote it.
                total += _COUNT.unpack(data[-_COUNT.size :])[0]
    return total


def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Train one job; milliseconds per batch by ``service/thread``."""
    tree, batch_size, warm_up = arguments.tree, arguments.batch_size, arguments.warm_up
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(tree / ".venv/bin/python"), "-m", "elasticdl.cli.main", "train"]
        model = f"--model_def={tree / 'benchmarks/deepfm_adagrad.py'}"
        flags = [model, f"--training_data={arguments.data}", f"--num_workers={arguments.workers}"]
        flags += [f"--minibatch_size={batch_size}", "--seed=1", *arguments.option]
        environment = os.environ | {"ELASTICDL_RUN_DIR": scratch, "PYTHONPATH": str(HERE / "thread_names")}
        with (Path(scratch) / "output").open("w") as output:
            job = subprocess.Popen([*command, *flags], env=environment, stdout=output, stderr=output)
        try:
            before, began = _await(job, Path(scratch), warm_up)
            labels = names(before)
            started_s = time.perf_counter()
            after, ended = _await(job, Path(scratch), began + arguments.batches)
            wall_s = time.perf_counter() - started_s
        finally:
            job.terminate()
            job.wait()
    spent: dict[str, float] = defaultdict(float)
    for thread, seconds in after.items():
        spent[labels.get(thread, "other/started later")] += 1e3 * (seconds - before.get(thread, 0.0)) / (ended - began)
    return {
        "records per second": (ended - began) * batch_size / wall_s,
        "all": sum(spent.values()),
        "beyond the step": sum(value for name, value in spent.items() if "tf_Compute" not in name),
        **{name: value for name, value in sorted(spent.items(), key=lambda item: -item[1]) if value >= 0.01},
    }


def _await(job: subprocess.Popen[bytes], folder: Path, batches: int) -> tuple[dict[Thread, float], int]:
    """CPU seconds of each thread once a number of batches are computed, and how many are."""
    while (count := computed(folder)) < batches:
        if job.poll() is not None:
            raise SystemExit(f"the job ended after {count} batches:\n{(folder / 'output').read_text()[-2000:]}")
        time.sleep(POLL_S)
    return cpu_s(job.pid), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--warm_up", type=int, default=100)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--tree", type=Path, default=HERE.parent)
    parser.add_argument("--option", action="append", default=[])
    spent = run(parser.parse_args())
    json.dump({name: round(value, 3) for name, value in spent.items()}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
