"""``python -m tests.fleet``: fleets under random faults. Without arguments 10,000 of them."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.fleet.run import Outcome, run_seed, tell

FAILURES_TOLD_MAX = 10


def main() -> int:
    """Entry point; the exit code is 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description="Simulate fleets under random faults.")
    parser.add_argument("--seed", type=int, help="run this one only, and tell its story")
    parser.add_argument("--seed-start", type=int, default=0, help="the first of many")
    parser.add_argument("--count", type=int, default=10_000, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        outcome = run_seed(arguments.seed)
        sys.stdout.write(f"{tell(arguments.seed, outcome)}\n")
        return int(bool(outcome.problems))
    began_s, failed, decisions = time.monotonic(), 0, 0
    seeds = range(arguments.seed_start, arguments.seed_start + arguments.count)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, outcome in zip(seeds, pool.map(run_seed, seeds, chunksize=10), strict=True):
            decisions += outcome.decisions
            if outcome.problems:
                failed += 1
                if failed <= FAILURES_TOLD_MAX:
                    _say(seed, outcome)
    seconds = time.monotonic() - began_s
    sys.stdout.write(f"{len(seeds)} seeds, {failed} failed; {decisions} decisions in {seconds:.1f} s\n")
    return int(bool(failed))


def _say(seed: int, outcome: Outcome) -> None:
    sys.stdout.write(f"seed {seed} failed: {outcome.problems[0]}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
