"""``python -m tests.sim.ring --seeds N``: random schedules; prints the first one that fails."""

from __future__ import annotations

import argparse
import sys

from tests.sim.ring.run import random_faults, simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        members = 1 + seed % 4
        faults = random_faults(seed, members)
        outcome = simulate(seed, members=members, rounds=3, faults=faults)
        if outcome.problem:
            sys.stdout.write("\n".join([*outcome.trace, *map(str, faults), f"seed {seed}: {outcome.problem}", ""]))
            return 1
    sys.stdout.write(f"{arguments.seeds} schedules\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
