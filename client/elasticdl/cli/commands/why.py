"""``elasticdl why``: where the wall time of a job went."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console, wrapped
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.cli.jobs.folded import wall_time
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import duration
from elasticdl.views.wall_time.causes import USEFUL, WORDS
from elasticdl.views.wall_time.values import WallTime, wall_time_facts

COLUMNS = ("cause", "seconds", "percent", "events")
_LINE_CHARS_MAX = 160


def why(job: ReadableJob, *, percent_min: float, as_json: bool = False) -> None:
    """Print the causes, and for each that loses time: the events that prove it, and what to do.

    Args:
        percent_min: causes with less of the wall time get no advice.
    """
    found, texts = wall_time(job)
    if not found.job:
        raise UserError(f"the event log of {job.job} holds no job yet")
    console = plain_console()
    if as_json:
        print_json(console, wall_time_facts(found))
        return
    useful = found.percent(found.useful_s)
    console.print(f"{job.job}: {duration(found.wall_s)}, of which {duration(found.useful_s)} ({useful:.0f}%) useful")
    path = ", ".join(f"{each.phase.value} {duration(each.ended_s - each.started_s)}" for each in found.path)
    console.print(f"one after the other: {path}")
    rows = [
        (
            WORDS[part.cause].title,
            f"{part.seconds:.3f}",
            f"{found.percent(part.seconds):.1f}",
            " ".join(f"#{seq}" for seq, _ in part.evidence),
        )
        for part in found.parts
    ]
    print_table(console, COLUMNS, rows)
    _print_advice(found, texts, percent_min, console)


def _print_advice(found: WallTime, texts: Mapping[int, str], percent_min: float, console: Console) -> None:
    for part in found.parts:
        words = WORDS[part.cause]
        percent = found.percent(part.seconds)
        if part.cause in USEFUL or not words.advice or percent < percent_min:
            continue
        console.print(wrapped(f"{words.title} ({duration(part.seconds)}, {percent:.0f}%): {words.advice}", console))
        for seq, seconds in part.evidence:
            if seq in texts:
                console.print(wrapped(f"  {duration(seconds)}: {texts[seq][:_LINE_CHARS_MAX]}", console, 4))
