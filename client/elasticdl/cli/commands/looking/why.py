"""``elasticdl why``: where the wall time of a job went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console, wrapped
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.cli.jobs.folded import spans_of, wall_time
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.shared.words import duration
from elasticdl.views.wall_time.causes import USEFUL, WORDS
from elasticdl.views.wall_time.one_task import task_spans_facts
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


def task_number(words: Sequence[str]) -> int | None:
    """The number in ``task 17``, also without the word; None: no words. Raises ``UserError``: they are others."""
    match [word.lower() for word in words]:
        case []:
            return None
        case [number] | ["task", number] if number.isdecimal():
            return int(number)
        case _:
            raise UserError(f"{' '.join(words)} is not a task", hint="Write elasticdl why JOB task 17.", usage=True)


def why_task(job: ReadableJob, number: int, *, as_json: bool = False) -> None:
    """Print where the time of one training task went, part by part, with the events between them."""
    task = TaskRef(purpose=Purpose.TRAIN, number=number)
    spans = spans_of(job, task)
    if not spans:
        raise UserError(f"the event log of {job.job} says nothing about task {number}, or only that it was dispatched")
    console = plain_console()
    facts = task_spans_facts(job.job, task, spans)
    if as_json:
        print_json(console, facts)
        return
    console.print(f"task {number} of {job.job}: {duration(facts['seconds'])} from its first dispatch")
    rows = [
        (each["what"], f"{each['seconds']:.3f}", f"{each['percent']:.1f}", each["process"], f"#{each['seq']}")
        for each in facts["parts"]
    ]
    print_table(console, ("what", "seconds", "percent", "process", "until"), rows)


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
