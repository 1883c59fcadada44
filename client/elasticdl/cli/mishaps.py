"""What went wrong with a job's stored state, and what was used instead: for the report and for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from elasticdl.master.core import State
from elasticdl.shared.events import SnapshotDamaged
from elasticdl.shared.storage import display


class DamagedRow(TypedDict):
    """A snapshot that could not be used; all but ``ps`` and ``problem`` are places in the job's storage."""

    ps: str
    snapshot: str
    object: str
    problem: str
    instead: str


def damaged_rows(state: State) -> list[DamagedRow]:
    """One row for each damaged object, in the order in which they were found."""
    return [
        DamagedRow(
            ps=event.ps,
            snapshot=display(event.snapshot),
            object=display(event.object),
            problem=event.problem,
            instead=display(event.instead),
        )
        for event in state.damaged.values()
    ]


def damage_text(event: SnapshotDamaged) -> str:
    """One sentence."""
    found = f"a snapshot of {event.ps} is damaged: {display(event.object)} {event.problem}"
    return f"{found}; {event.ps} goes on from {display(event.instead)}" if event.instead else found


def mishap_lines(state: State) -> Iterator[str]:
    """All of it, one line each."""
    for event in state.damaged.values():
        yield damage_text(event)
