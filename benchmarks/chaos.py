"""DeepFM jobs of some minutes under Poisson kills, beside an undisturbed one: audit, AUC, goodput and where time went.

elasticdl zoo data deepfm build/clicks2m --records=2000000
python benchmarks/chaos.py build/clicks2m
python benchmarks/chaos.py build/clicks2m --kill worker:5s --kill master:20s    # of one's own
python benchmarks/chaos.py build/records.npz --allreduce --epochs 200    # three workers in a ring, a perceptron

The last one writes the file if it is not there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from benchmarks.strategies import write_data  # noqa: E402

ELASTICDL = [sys.executable, "-m", "elasticdl.cli"]
SCENARIOS = {
    "undisturbed": [],
    "a worker every 10 s": ["worker:10s"],
    "each every 30 s": ["worker:30s", "ps:30s", "master:30s"],
    "several at once": ["ps+master:40s", "all-ps+all-worker:60s", "all-worker+all-ps+master+nats-server:60s"],
}


def deepfm(data: Path) -> list[str]:
    """The options of a DeepFM job."""
    parts = ["--model_def=deepfm.custom_model", f"--training_data={data}/train", f"--validation_data={data}/test"]
    return [*parts, "--minibatch_size=512"]


def allreduce(data: Path) -> list[str]:
    """The options of a job of three workers in a ring, which compute with a perceptron."""
    if not data.exists():
        write_data("mlp", data)
    model = [f"--model_def={HERE / 'peers/keras_models.py'}", "--model_params=kind='mlp'", "--label=label"]
    ring = ["--distribution_strategy=AllreduceStrategy", "--num_workers=3", "--minibatch_size=256"]
    return [*model, *ring, f"--training_data={data}"]


def train(options: list[str], folder: Path, epochs: int, kills: list[str], seed: int) -> dict[str, Any]:
    """Run one job, under kills from its first gradient on; returns its report, with ``kills``: who, how often."""
    report, jobs, log = folder / "report.json", folder / "jobs", folder / "job.log"
    command = [
        *ELASTICDL,
        "train",
        *options,
        f"--num_epochs={epochs}",
        f"--seed={seed}",
        f"--run_dir={jobs}",
        f"--report={report}",
    ]
    job = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT)
    killed = ""
    if kills:
        while "loss" not in log.read_text() and job.poll() is None:
            time.sleep(0.1)
        (run,) = jobs.iterdir()
        rates = [f"--kill={kill}" for kill in kills]
        chaos = [*ELASTICDL, "chaos", run.name, f"--run_dir={jobs}", f"--seed={seed}", *rates]
        killed = subprocess.run(chaos, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    if job.wait() != 0:
        sys.exit(f"the job did not succeed:\n{log.read_text()}")
    facts: dict[str, Any] = json.loads(report.read_text())
    return facts | {"kills": killed}


def main() -> None:
    """Run all and print them below each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kill", action="append", help="as for elasticdl chaos; instead of the scenarios")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--allreduce", action="store_true")
    arguments = parser.parse_args()
    options = (allreduce if arguments.allreduce else deepfm)(arguments.data)
    scenarios = dict(list(SCENARIOS.items())[:2]) if arguments.allreduce else SCENARIOS
    if arguments.kill:
        scenarios = {"undisturbed": [], "killed": arguments.kill}
    print(f"{'':<20} {'audit':<6} {'repaired':>8} {'AUC':>7} {'goodput':>7} {'records/s':>9} {'wall s':>7}  workers")
    for name, kills in scenarios.items():
        with tempfile.TemporaryDirectory() as folder:
            facts = train(options, Path(folder), arguments.epochs, kills, arguments.seed)
        audit = "exact" if facts["audit"]["exact"] else "WRONG"
        spent_s = facts["worker_seconds"]
        total_s = sum(spent_s.values())
        split = "  ".join(f"{part} {seconds / total_s:.0%}" for part, seconds in spent_s.items())
        print(
            f"{name:<20} {audit:<6} {facts['audit']['repaired']:>8} {facts['metrics'].get('auc', 0):>7.4f} "
            f"{facts['goodput']:>7.3f} {facts['records_per_second']:>9,.0f} {facts['wall_s']:>7.1f}  {split}",
            flush=True,
        )
        if facts["kills"]:
            print(f"{'':<20} {facts['kills']}", flush=True)


if __name__ == "__main__":
    main()
