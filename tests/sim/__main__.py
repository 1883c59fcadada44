"""``python -m tests.sim``: run seeds. Without arguments 10,000 of them; one seed tells its whole story on failure."""

from __future__ import annotations

import argparse
import sys

from tests.sim.run import Tally, run_seed, run_seeds, tell
from tests.sim.scenarios import shrink, to_text
from tests.sim.schedule import random_schedule

FAILURES_TOLD_MAX = 10


def say(what: object) -> None:
    """Tell the user at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main() -> int:
    """Entry point; the exit code is 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulate jobs under random faults.")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--seed-start", type=int, default=0, help="the first of many")
    parser.add_argument("--count", type=int, default=10_000, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what has nothing to do with it")
    parser.add_argument("--verbose", action="store_true", help="print schedule and story, also of success")
    arguments = parser.parse_args()
    if arguments.seed is not None and arguments.shrink:
        say(to_text(shrink(random_schedule(arguments.seed))))
        return 0
    if arguments.seed is not None:
        outcome = run_seed(arguments.seed)
        say(tell(random_schedule(arguments.seed), outcome) if arguments.verbose or outcome.problems else "succeeded")
        return int(bool(outcome.problems))
    tally = Tally()
    for failed in run_seeds(arguments.seed_start, arguments.count, jobs=arguments.jobs, tally=tally):
        say(f"seed {failed.seed} failed: {failed.outcome.problems[0]}")
        if arguments.verbose or tally.failed == 1:
            say(tell(random_schedule(failed.seed), failed.outcome))
        if tally.failed >= FAILURES_TOLD_MAX:
            say("and so on")
            break
        say(f"again: make sim SEED={failed.seed}")
    say(tally)
    return int(bool(tally.failed))


if __name__ == "__main__":
    sys.exit(main())
