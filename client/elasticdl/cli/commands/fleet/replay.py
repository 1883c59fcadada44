"""``elasticdl fleet replay``: a shared cluster and its decisions from the log of a controller."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.controller.history.log_file import read_log
from elasticdl.controller.history.overview import what
from elasticdl.controller.history.records import Record
from elasticdl.controller.history.replay import Difference, Fleet, differences, fold
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import count, time_of_day
from elasticdl.views.points import Point

_DECISIONS_SHOWN = 10
_SIMULATED_S_MAX = 1e8
"""Times of simulations begin at 0."""


def replay(file: Path, until: str, *, check: bool, as_json: bool) -> bool:
    """Print the state at a point; returns whether all decisions are the same today, if that was asked.

    Raises:
        UserError: the file can't be read, or has no such point.
    """
    policy, records = read_log(file)
    known = list(_until(records, until)) if until else list(records)
    if not known:
        raise UserError(f"{file} has no decision" + (f" until {until}" if until else ""))
    fleet = fold(known)
    found = list(differences(policy, known)) if check else []
    console = plain_console()
    if as_json:
        print_json(console, _facts(fleet, found if check else None))
        return not found
    _print(fleet, console)
    if check:
        for each in found:
            console.print(_words(each), soft_wrap=True)
        differ = len({each.number for each in found})
        result = "all are the same" if not differ else f"{differ:,} differ"
        console.print(f"Re-ran {count(len(known), 'decision')}: {result}.")
    return not found


def _until(records: Iterator[Record], text: str) -> Iterator[Record]:
    point = Point.of("until", text)
    if point.event:
        raise UserError(
            f"--until={text} is not a point in the log of a fleet",
            hint="Give the number of a decision (355) or a time (17:51:36, +90s after the first decision).",
            usage=True,
        )
    if point.seq:
        found = list(islice(records, point.seq))
        if len(found) < point.seq:
            raise UserError(f"--until={text}: the log ends at #{len(found)}")
        yield from found
        return
    limit_s: float | None = None
    for record in records:
        limit_s = point.time_s(record.time_s) if limit_s is None else limit_s
        if record.time_s > limit_s:
            return
        yield record


def _print(fleet: Fleet, console: Console) -> None:
    view = fleet.view
    console.print(
        f"After decision #{fleet.number}, {_time(fleet.time_s)}: {count(len(view.nodes), 'node')}, "
        f"{count(len(view.pods), 'pod')}, {count(len(view.jobs), 'job')}; not done yet: "
        f"{count(len(view.starts), 'start')}, {count(len(view.drains), 'drain')}"
    )
    rows = [
        [
            each.job,
            str(view.jobs[each.job].priority),
            view.jobs[each.job].queue,
            f"{each.workers}",
            f"{each.ps}",
            each.reason,
        ]
        for each in sorted(fleet.targets.values(), key=lambda each: each.job)
        if each.job in view.jobs
    ]
    print_table(console, ["job", "priority", "queue", "workers", "ps", "reason"], rows)
    print_table(
        console,
        ["decision", "time", "job", "what", "reason"],
        [
            [f"#{number}", _time(s), target.job, what(target), target.reason]
            for number, s, target in fleet.decided[-_DECISIONS_SHOWN:]
        ],
    )


def _words(difference: Difference) -> str:
    sides = [
        "nothing" if each is None else f"{what(each)}: {each.reason}"
        for each in (difference.recorded, difference.decided)
    ]
    if sides[0] == sides[1]:
        sides = [str(difference.recorded), str(difference.decided)]
    return f"#{difference.number} {difference.job}: recorded {sides[0]}; decided now {sides[1]}"


def _time(time_s: float) -> str:
    return f"{time_s:.1f} s" if time_s < _SIMULATED_S_MAX else time_of_day(time_s)


def _facts(fleet: Fleet, found: list[Difference] | None) -> dict[str, object]:
    view = fleet.view
    facts: dict[str, object] = {
        "decision": fleet.number,
        "time_s": fleet.time_s,
        "nodes": len(view.nodes),
        "pods": len(view.pods),
        "targets": [fleet.targets[name] for name in sorted(fleet.targets)],
        "decided": [{"decision": number, "time_s": s, "target": target} for number, s, target in fleet.decided],
    }
    if found is not None:
        facts["differences"] = found
    return facts
