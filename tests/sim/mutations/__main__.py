"""``python -m tests.sim.mutations``: find every planted bug, beginning with the seed that showed it last."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.sim.mutations import MUTATIONS
from tests.sim.mutations.search import find_by_name, write_seeds
from tests.sim.mutations.seeds import SEEDS

SCHEDULES_MAX = 10_000


def main() -> int:
    """Entry point; the exit code is 1 when a mutation was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutations", description="Plant bugs and find them.")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--count", type=int, default=SCHEDULES_MAX, help="schedules to try at most for each")
    parser.add_argument("--only", default="", help="part of a name")
    arguments = parser.parse_args()
    seeds, missed = dict(SEEDS), 0
    with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        tasks = [
            pool.submit(find_by_name, each.name, seeds.get(each.name, (-1, 0, ""))[:2], arguments.count)
            for each in MUTATIONS
            if arguments.only in each.name
        ]
        for task in as_completed(tasks):
            found = task.result()
            if found.symptom:
                seeds[found.mutation] = found.seed, found.variant, found.symptom
                verdict = f"seed {found.seed}, variant {found.variant}, after {found.tried}: {found.symptom}"
            else:
                missed += 1
                verdict = f"NOT FOUND in {found.tried} schedules"
            sys.stdout.write(f"{found.mutation}: {verdict[:200]}\n")
            sys.stdout.flush()
            write_seeds(seeds)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
