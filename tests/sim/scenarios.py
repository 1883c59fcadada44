"""Schedules as text files: small, readable, and with the outcome that they had at the last review.

# A comment that says what this is about.
seed 7
job ps=2 workers=1                  fields of ``Shape`` that differ from their defaults
network unanswered=0.02             fields of ``Weather``, likewise
until 4.000                         when faults end
at 1.250 kill ps-0                  faults, see ``faults.py``
----
the outcome, written by ``python -m tests.sim.scenarios --rewrite``
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any, TypeVar

from tests.sim.faults import Fault
from tests.sim.job import Shape
from tests.sim.network import Weather
from tests.sim.quiet import quiet
from tests.sim.world import Outcome, Schedule, simulate

FOLDER = Path(__file__).parents[1] / "scenarios"
LINE = "----"

_T = TypeVar("_T", Shape, Weather)


def parse(text: str) -> Schedule:
    """The schedule of a scenario.

    Raises:
        ValueError: a line is not understood.
    """
    seed, until_s, shape, weather = 0, 0.0, Shape(), Weather()
    faults: list[Fault] = []
    for line in text.split(LINE)[0].splitlines():
        word, _, rest = line.strip().partition(" ")
        match word:
            case "" | "#":
                pass
            case "seed":
                seed = int(rest)
            case "until":
                until_s = float(rest)
            case "job":
                shape = _changed(shape, rest)
            case "network":
                weather = _changed(weather, rest)
            case "at" | "on":
                faults.append(Fault.parse(line.strip()))
            case _:
                raise ValueError(f"not understood: {line}")
    return Schedule(seed=seed, shape=shape, weather=weather, faults=tuple(faults), horizon_s=until_s)


def load(name: str) -> Schedule:
    """The schedule of the scenario with this file name, without its suffix."""
    return parse((FOLDER / f"{name}.txt").read_text())


def to_text(schedule: Schedule) -> str:
    """Inverse of ``parse``, up to the line."""
    lines = [f"seed {schedule.seed}"]
    for word, value in (("job", schedule.shape), ("network", schedule.weather)):
        changed = [
            f"{field.name}={getattr(value, field.name)}"
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        ]
        if changed:
            lines.append(" ".join([word, *changed]))
    lines.append(f"until {schedule.horizon_s:.3f}")
    return "\n".join([*lines, *map(str, schedule.faults)]) + "\n"


def outcome_text(outcome: Outcome) -> str:
    """The faults, what they ended, and the result; times and regular exits change with every message more or less."""
    story = [re.sub(r"^ *[0-9.]+  ", "", line) for line in outcome.story]
    deaths = [line for line in story if re.search(r"^FAULT|ended \([^0]|fenced|hangs|can't go on|gave up", line)]
    end = [f"PROBLEM {problem}" for problem in outcome.problems] or ["succeeded"]
    return "\n".join([*deaths, *end]) + "\n"


def run(text: str) -> Outcome:
    """Run a scenario."""
    with quiet():
        return simulate(parse(text))


def rewritten(text: str) -> str:
    """A scenario with the outcome that it has now."""
    return text.split(LINE)[0] + f"{LINE}\n" + outcome_text(run(text))


def shrink(schedule: Schedule) -> Schedule:
    """Leave out faults and bad weather while the outcome stays bad."""
    with quiet():
        calm = dataclasses.replace(schedule, weather=Weather(latency_s=schedule.weather.latency_s))
        if simulate(calm).problems:
            schedule = calm
        for fault in schedule.faults:
            fewer = tuple(each for each in schedule.faults if each is not fault)
            smaller = dataclasses.replace(schedule, faults=fewer)
            if simulate(smaller).problems:
                schedule = smaller
    return schedule


def _changed(value: _T, text: str) -> _T:
    changes: dict[str, Any] = {}
    for word in text.split():
        name, _, given = word.partition("=")
        default = getattr(value, name)
        kind = int if default is None else type(default)
        changes[name] = given == "True" if kind is bool else kind(given)
    return dataclasses.replace(value, **changes)


def main() -> int:
    """Entry point: rewrite the outcomes, or say which ones differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.scenarios", description="Run the scenario files.")
    parser.add_argument("--rewrite", action="store_true", help="write the outcomes that they have now")
    arguments = parser.parse_args()
    differing = 0
    for path in sorted(FOLDER.glob("*.txt")):
        before = path.read_text()
        after = rewritten(before)
        if after != before:
            differing += 1
            sys.stdout.write(f"{path.name} has another outcome{': rewritten' if arguments.rewrite else ''}\n")
        if arguments.rewrite:
            path.write_text(after)
    return int(bool(differing) and not arguments.rewrite)


if __name__ == "__main__":
    sys.exit(main())
