"""Finds the damage of every mutation, beginning with the seed that showed it last, and writes it down.

``python -m tests.sim.planting`` runs them all and rewrites the table in ``docs/simulation.md``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.sim.mutations import Mutation
from tests.sim.quiet import quiet
from tests.sim.run_mutations import MUTATIONS
from tests.sim.schedule import random_schedule
from tests.sim.world import simulate

SEEDS_MAX = 10_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "simulation.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The seed that shows a mutation's damage; ``seed`` -1: none did."""

    mutation: str
    seed: int
    tried: int
    symptom: str


def find(mutation: Mutation, known: int, seeds_max: int) -> Found:
    """The first seed that ends badly with the mutation and well without it; the last one found is tried first."""
    tried = 0
    with quiet():
        for seed in (*([known] if known >= 0 else []), *range(seeds_max)):
            tried += 1
            problems = _damage(mutation, seed)
            if problems and not simulate(random_schedule(seed)).problems:
                return Found(mutation=mutation.name, seed=seed, tried=tried, symptom=problems[0])
    return Found(mutation=mutation.name, seed=-1, tried=tried, symptom="")


def _damage(mutation: Mutation, seed: int) -> tuple[str, ...]:
    with mutation.patch():
        try:
            return simulate(random_schedule(seed)).problems
        except Exception as error:  # A broken rule may break anything.
            return (f"{type(error).__name__}: {error}",)


def known_seeds() -> dict[str, int]:
    """The seeds of the table in the document."""
    rows = re.findall(r"^\| ([a-z ]+) \|.*?\| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return {name: int(seed) for name, seed in rows}


def write_table(found: dict[str, Found]) -> None:
    """Replace the table in the document."""
    lines = ["| mutation | rule that it removes | seed | symptom |", "| --- | --- | ---: | --- |"]
    for mutation in MUTATIONS:
        one = found[mutation.name]
        symptom = " ".join(one.symptom.split())[:110].replace("|", "/")
        lines.append(f"| {mutation.name} | {mutation.rule} | {one.seed if one.seed >= 0 else '-'} | {symptom} |")
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    DOCUMENT.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:])


def _find_by_name(name: str, known: int, seeds_max: int) -> Found:
    return find(next(mutation for mutation in MUTATIONS if mutation.name == name), known, seeds_max)


def main() -> int:
    """Entry point; the exit code is 1 when a mutation was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planting", description="Plant bugs and find them.")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--count", type=int, default=SEEDS_MAX, help="seeds to try at most for each")
    parser.add_argument("--only", default="", help="part of a name")
    arguments = parser.parse_args()
    known = known_seeds()
    found: dict[str, Found] = {}
    with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        tasks = [
            pool.submit(_find_by_name, mutation.name, known.get(mutation.name, -1), arguments.count)
            for mutation in MUTATIONS
            if arguments.only in mutation.name
        ]
        for task in tasks:
            one = found[task.result().mutation] = task.result()
            verdict = f"seed {one.seed} after {one.tried}: {one.symptom}" if one.seed >= 0 else "NOT FOUND"
            sys.stdout.write(f"{one.mutation}: {verdict[:200]}\n")
            sys.stdout.flush()
    if not arguments.only:
        write_table(found)
    return int(any(one.seed < 0 for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
