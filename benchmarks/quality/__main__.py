"""Trains fourteen models with ``fit`` and with jobs, compares them, and writes docs/quality.md. Takes about two hours.

python -m benchmarks.quality                      # what has no result yet; then the page
python -m benchmarks.quality --models gru --modes async --workers 2 --again
python -m benchmarks.quality --modes ring         # only the page's section about AllReduce
python -m benchmarks.quality --modes pss          # TensorFlow's ParameterServerStrategy; half an hour more
python -m benchmarks.quality --page               # only the page
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality import rings
from benchmarks.quality.cases import CASES, Case
from benchmarks.quality.page import page
from benchmarks.quality.plot import plot
from benchmarks.quality.results import ASYNC, FIT, PSS, RING, SYNC, Cell, Result, ResultFile, wanted, write_ranges
from benchmarks.quality.runs import RANGES, ROOT, RunError, Runner
from benchmarks.quality.setting import Setting, describe_machine

FOLDER = ROOT / "build" / "quality"
PAGE, PLOT = ROOT / "docs" / "quality.md", ROOT / "docs" / "quality.svg"
FIT_SEEDS = 25
"""With few, the worst of them is so near the median that jobs of the same quality are outside by chance. The worst of 9
seeds of ResNet-20 has a loss of 1.32, the worst of 18 one of 3.51.
"""
SEEDS = {1: 1, 2: 3, 6: 3}
"""Workers -> seeds of each job."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[case.name for case in CASES], default=[c.name for c in CASES])
    parser.add_argument("--modes", nargs="+", choices=[FIT, ASYNC, SYNC, RING, PSS], default=[FIT, ASYNC, SYNC, RING])
    parser.add_argument("--workers", nargs="+", type=int, choices=list(SEEDS), default=list(SEEDS))
    parser.add_argument("--seeds", type=int, help="seeds of each job (default: 1, 3 and 3 with 1, 2 and 6 workers)")
    parser.add_argument("--again", action="store_true", help="run also what has a result already")
    parser.add_argument("--page", action="store_true", help="write only the page, from the results so far")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for data, results and logs")
    return parser.parse_args()


def run(cells: list[Cell], results: ResultFile, runner: Runner) -> list[str]:
    """Run cells one after the other; returns what failed."""
    cases: dict[str, Case] = {case.name: case for case in CASES}
    failures, started_s = [], time.monotonic()
    groups = [list(group) for _, group in itertools.groupby(cells, _run_of)]
    for number, group in enumerate(groups, start=1):
        case, mode, workers = cases[group[0].case], group[0].mode, group[0].workers
        try:
            if mode == FIT:
                found = runner.fit(case, [cell.seed for cell in group])
            elif mode == PSS:
                found = [runner.strategy(case, workers, group[0].seed)]
            else:
                found = [runner.job(case, mode, workers, group[0].seed)]
        except RunError as error:
            failures.append(str(error))
            print(error, file=sys.stderr, flush=True)
            continue
        for result in found:
            results.add(result)
            cell, metrics = result.cell, "  ".join(f"{name} {value:.4g}" for name, value in result.metrics.items())
            print(
                f"{time.monotonic() - started_s:5.0f} s  {number}/{len(groups)}  {cell.case:<22}{cell.mode:<6}"
                f"workers {cell.workers}  seed {cell.seed}  {metrics}  ({result.train_s:.1f} s)",
                flush=True,
            )
    return failures


def _run_of(cell: Cell) -> tuple[str, str, int, int]:
    """Cells with the same value are one run: ``fit`` trains with all seeds in one process."""
    return cell.case, cell.mode, cell.workers, 0 if cell.mode == FIT else cell.seed


def write_page(results: ResultFile, modes: list[str]) -> None:
    """Write docs/quality.md and its plot; of rings alone only their section, beside the ranges of earlier runs."""
    found = results.results
    if modes != [RING]:
        PAGE.write_text(page(found, CASES, _setting(found, (FIT, ASYNC, SYNC))))
        plot(found, CASES, PLOT)
        write_ranges(found, RANGES)
    section = rings.section(found, CASES, json.loads(RANGES.read_text()), _setting(found, (RING,)))
    PAGE.write_text(rings.with_section(PAGE.read_text(), section))
    print(f"wrote {PAGE.relative_to(ROOT)}")


def _setting(results: list[Result], modes: Sequence[str]) -> Setting:
    """Where, when and how long some modes ran."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    wall_s = sum(result.wall_s for result in results if result.cell.mode in modes)
    return Setting(machine=describe_machine(), date=today, wall_s=wall_s)


def main() -> None:
    """Run what is missing and write the page."""
    chosen = arguments()
    results = ResultFile(chosen.folder / "results.jsonl")
    seeds = {workers: chosen.seeds or SEEDS[workers] for workers in chosen.workers}
    cells = wanted(chosen.models, chosen.modes, seeds, FIT_SEEDS)
    failures = []
    if not chosen.page:
        missing = [cell for cell in cells if chosen.again or cell not in results]
        failures = run(missing, results, Runner(folder=chosen.folder))
    if failures:
        sys.exit("\n".join([f"{len(failures)} runs failed:", *failures]))
    modes = [RING] if chosen.modes == [RING] else [FIT, ASYNC, SYNC, RING]
    everything = wanted([case.name for case in CASES], modes, dict.fromkeys(SEEDS, 1), FIT_SEEDS)
    if chosen.page or all(cell in results for cell in everything):
        write_page(results, modes)


if __name__ == "__main__":
    main()
