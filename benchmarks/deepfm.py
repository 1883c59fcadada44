"""A DeepFM job beside the best single process: records per second and CPU per batch, measured in turns.

    python benchmarks/deepfm.py FOLDER [--rounds 3] [--workers 2] [--batch 512]

FOLDER holds what ``elasticdl zoo data deepfm FOLDER`` writes (it is written if it is missing). Each round runs the
single process on one thread and on all cores, then a job of one ps and several workers. On a shared machine rates swing
by a factor; the ratio within a round and CPU seconds are what to look at. A job's CPU per batch is taken from the
difference of two jobs of 100,000 and of all records, so that starting up does not count; its rate too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHORT_RECORDS_FILE = "part-00000.parquet"


def single(folder: Path, batches: int, threads: int, minibatch: int) -> dict[str, Any]:
    """One run of the single process."""
    command = [sys.executable, str(HERE / "single_process.py"), str(folder / "train")]
    flags = ["--batches", str(batches), "--threads", str(threads), "--minibatch_size", str(minibatch)]
    return dict(json.loads(_run([*command, *flags]).splitlines()[-1]))


def job(data: Path, workers: int, minibatch: int, scratch: Path) -> dict[str, Any]:
    """One training job; its report."""
    report = scratch / "report.json"
    command = [sys.executable, "-m", "elasticdl.cli", "train", f"--model_def={HERE / 'deepfm_adagrad.py'}"]
    flags = [f"--training_data={data}", f"--num_workers={workers}", f"--minibatch_size={minibatch}", "--seed=1"]
    _run([*command, *flags, f"--report={report}"], ELASTICDL_RUN_DIR=str(scratch / "jobs"))
    facts = dict(json.loads(report.read_text()))
    if not facts["audit"]["exact"]:
        raise SystemExit("the audit found batches lost or doubled: do not trust the speed of this job")
    return facts


def cpu_ms(short: dict[str, Any], whole: dict[str, Any]) -> dict[str, float]:
    """CPU milliseconds per batch and kind of service, without start and end."""
    batches = whole["audit"]["batches"] - short["audit"]["batches"]
    spent: dict[str, float] = {}
    for name, service in whole["services"].items():
        kind = name.rsplit("-", 1)[0] if name[-1].isdigit() else name
        more_s = service["cpu_s"] - short["services"][name]["cpu_s"]
        spent[kind] = spent.get(kind, 0.0) + 1e3 * more_s / batches
    return spent


def _run(command: list[str], **environment: str) -> str:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512)
    arguments = parser.parse_args()
    if not arguments.folder.exists():
        _run([sys.executable, "-m", "elasticdl.cli", "zoo", "data", "deepfm", str(arguments.folder)])
    cores = len(os.sched_getaffinity(0))
    rates: dict[str, list[float]] = {}
    ratios: list[float] = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as name:
            _round(arguments, cores, Path(name), rates, ratios, number)
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    print(json.dumps({"medians": medians, "job / single process": round(statistics.median(ratios), 3)}, indent=1))


def _round(
    arguments: argparse.Namespace,
    cores: int,
    scratch: Path,
    rates: dict[str, list[float]],
    ratios: list[float],
    number: int,
) -> None:
    batches = 204_800 // arguments.batch
    one = single(arguments.folder, batches, 1, arguments.batch)
    all_cores = single(arguments.folder, batches, cores, arguments.batch)
    short = job(arguments.folder / "train" / SHORT_RECORDS_FILE, arguments.workers, arguments.batch, scratch)
    whole = job(arguments.folder / "train", arguments.workers, arguments.batch, scratch)
    spent = cpu_ms(short, whole)
    rate = (whole["audit"]["records"] - short["audit"]["records"]) / (whole["train_all_s"] - short["train_all_s"])
    found = {
        "single, 1 thread: records/s": one["records_per_second"],
        "single, 1 thread: CPU ms per batch": one["cpu_ms_per_batch"],
        f"single, {cores} threads: records/s": all_cores["records_per_second"],
        f"single, {cores} threads: CPU ms per batch": all_cores["cpu_ms_per_batch"],
        "job: records/s": rate,
        "job: records/s with its start-up": whole["records_per_second"],
        "job: CPU ms per batch": sum(spent.values()),
        **{f"job: CPU ms per batch, {kind}": value for kind, value in spent.items()},
    }
    ratios.append(rate / all_cores["records_per_second"])
    for name, value in found.items():
        rates.setdefault(name, []).append(value)
    shown = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
    print(f"round {number + 1}: {shown}; ratio {ratios[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
