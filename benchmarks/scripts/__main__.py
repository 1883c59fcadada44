"""Runs each script by Python and as a job with 1 and 2 workers, with several seeds, and prints the final losses.

    python -m benchmarks.scripts [--scripts digits transformer] [--seeds 5] [--minutes 30] [--output results.json]

A run that is in the output file already is not repeated, so it can be interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parent
SCRIPTS = ("digits", "transformer", "wide_deep", "sequences")
MODES = ("plain", "1 worker", "2 workers")
MARK = "RESULT "


def run(script: str, mode: str, seed: int) -> dict[str, float]:
    """The final losses and metrics of one run; of a job also whether its audit was exact."""
    file = str(FOLDER / f"{script}.py")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, file]
        if mode != "plain":
            options = [f"--num_workers={mode[0]}", f"--run_dir={folder}", f"--seed={seed}"]
            command = [sys.executable, "-m", "elasticdl.cli", "run", *options, file]
        began = time.monotonic()
        ended = subprocess.run([*command, str(seed)], capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(
                f"{script}, {mode}: exit code {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
            )
        line = next(line for line in ended.stdout.splitlines() if line.startswith(MARK))
        found: dict[str, float] = json.loads(line.removeprefix(MARK)) | {"seconds": time.monotonic() - began}
        reports = list(Path(folder).glob("*/report.json"))
        if not all(json.loads(report.read_text())["audit"]["exact"] for report in reports):
            raise SystemExit(f"{script}, {mode}: an audit is not exact")
    return found


def shown(results: dict[str, dict[str, float]], script: str, mode: str, name: str) -> str:
    """Mean, smallest and largest value over the seeds."""
    values = [one[name] for key, one in results.items() if key.startswith(f"{script}, {mode}, ") and name in one]
    if not values:
        return "-"
    return f"{sum(values) / len(values):.4f} ({min(values):.4f} to {max(values):.4f}; {len(values)})"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30.0, help="Begin no run after this time.")
    parser.add_argument("--output", type=Path, default=Path("results.json"))
    given = parser.parse_args()
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    until = time.monotonic() + 60 * given.minutes
    for seed in range(1, given.seeds + 1):
        for script in given.scripts:
            for mode in MODES:
                key = f"{script}, {mode}, {seed}"
                if key not in results and time.monotonic() < until:
                    results[key] = run(script, mode, seed)
                    given.output.write_text(json.dumps(results, indent=1))
    print("| script | loss | " + " | ".join(MODES) + " |\n|---|---|" + "---|" * len(MODES))
    for script in given.scripts:
        for name in ("loss", "val_loss"):
            print(f"| {script} | {name} | " + " | ".join(shown(results, script, mode, name) for mode in MODES) + " |")


if __name__ == "__main__":
    main()
