"""A DeepFM job under Poisson kills beside an undisturbed one: audit, AUC, goodput and wall time.

    python benchmarks/chaos.py clicks --kill worker:10s
    python benchmarks/chaos.py clicks --kill worker:30s --kill ps:30s --kill master:30s

``clicks`` is what ``elasticdl zoo data deepfm clicks`` wrote.
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

ELASTICDL = [sys.executable, "-m", "elasticdl.cli.main"]


def train(data: Path, folder: Path, epochs: int, kills: list[str], seed: int) -> dict[str, Any]:
    """Run one job, under kills from its first gradient on; returns its report."""
    report, jobs = folder / "report.json", folder / "jobs"
    command = [
        *ELASTICDL,
        "train",
        "--model_def=deepfm.custom_model",
        f"--training_data={data}/train",
        f"--validation_data={data}/test",
        "--minibatch_size=512",
        f"--num_epochs={epochs}",
        f"--seed={seed}",
        f"--run_dir={jobs}",
        f"--report={report}",
    ]
    job = subprocess.Popen(command, stdout=(folder / "job.log").open("w"), stderr=subprocess.STDOUT)
    if kills:
        while not any(jobs.glob("*/job.json")):
            time.sleep(0.1)
        (run,) = jobs.iterdir()
        rates = [f"--kill={kill}" for kill in kills]
        subprocess.run([*ELASTICDL, "chaos", run.name, f"--run_dir={jobs}", f"--seed={seed}", *rates], check=False)
    job.wait()
    facts: dict[str, Any] = json.loads(report.read_text())
    return facts


def main() -> None:
    """Run both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kill", action="append", required=True, help="as for elasticdl chaos")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{'':<12} {'audit':<7} {'repaired':>8} {'AUC':>8} {'goodput':>8} {'records/s':>10} {'wall s':>7}  restarts")
    for name, kills in (("undisturbed", []), ("killed", arguments.kill)):
        with tempfile.TemporaryDirectory() as folder:
            facts = train(arguments.data, Path(folder), arguments.epochs, kills, arguments.seed)
        restarts = {pod: each["restarts"] for pod, each in facts["services"].items() if each["restarts"]}
        audit = "exact" if facts["audit"]["exact"] else "WRONG"
        print(
            f"{name:<12} {audit:<7} {facts['audit']['repaired']:>8} {facts['metrics'].get('auc', 0):>8.4f} "
            f"{facts['goodput']:>8.3f} {facts['records_per_second']:>10,.0f} {facts['wall_s']:>7.1f}  {restarts}"
        )


if __name__ == "__main__":
    main()
