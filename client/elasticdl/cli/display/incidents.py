"""What went wrong with a job's stored state, and what was used instead: for the report and for people. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypedDict

from elasticdl.master.core import State
from elasticdl.shared.messages.events import LostLog, SnapshotDamaged
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


class LostRow(TypedDict):
    """A part of the log that is gone; seconds since the epoch, null where nobody knows."""

    resumed_s: float
    after_s: float | None
    until_s: float | None
    records: int | None


def lost_rows(state: State) -> list[LostRow]:
    """One row for each part of the log that a resume found missing."""
    return [lost_row(resumed_s, lost) for resumed_s, lost in state.lost_logs]


def lost_row(resumed_s: float, lost: LostLog) -> LostRow:
    """What a resume at ``resumed_s`` found missing."""
    return LostRow(
        resumed_s=resumed_s,
        after_s=lost.after_s or None,
        until_s=lost.until_s or None,
        records=lost.records or None,
    )


def lost_text(row: LostRow) -> str:
    """One sentence."""
    begins = f"after {_moment(row['after_s'])}" if row["after_s"] else "from the job's beginning"
    ends = _moment(row["until_s"]) if row["until_s"] else f"some time before {_moment(row['resumed_s'])}"
    count = f" ({row['records']:,} records)" if row["records"] else ""
    resumed = _moment(row["resumed_s"])
    return f"lost {begins} until {ends}{count}; the job went on from the snapshots' ledgers at {resumed}"


def _moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def mishap_lines(state: State) -> Iterator[str]:
    """All of it, one line each."""
    for row in lost_rows(state):
        yield f"the event log was {lost_text(row)}"
    for event in state.damaged.values():
        yield damage_text(event)
