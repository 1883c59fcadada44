"""``python -m tests.fleet.record``: writes the recorded fleets of ``tests/histories/fleets`` again."""

from __future__ import annotations

from pathlib import Path

from tests.fleet import rules
from tests.fleet.schedule import END_S, random_fleet
from tests.fleet.world import POLICY, Fleet

from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.sim import load, simulate

FLEETS = Path(__file__).parents[1] / "histories" / "fleets"
SEEDS = (19, 52, 92, 105)
"""With services and priorities, queues, selectors, curves, and every kind of fault."""


def record_seed(seed: int, path: Path) -> None:
    """Write the decisions of a fleet under faults."""
    planner = RecordingPlanner(path, _refuse, POLICY)
    scenario, faults = random_fleet(seed)
    Fleet(scenario, faults, seed, planner=planner).run(END_S, rules.at_each_moment)
    planner.close()


def _refuse(problem: str) -> None:
    raise OSError(problem)


def main() -> None:
    """Entry point."""
    FLEETS.mkdir(exist_ok=True)
    simulate(load("two-jobs"), record=FLEETS / "two-jobs.fleet")
    for seed in SEEDS:
        record_seed(seed, FLEETS / f"seed-{seed}.fleet")
    for former in FLEETS.glob("*.1"):
        former.unlink()


if __name__ == "__main__":
    main()
