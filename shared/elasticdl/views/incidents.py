"""Damaged snapshots, unreadable messages and lost parts of the event log, and how the job continued. Pure.

Each as a row and as a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from elasticdl.master.core import State
from elasticdl.shared.messages.events import LostLog, MessageUnreadable, SnapshotDamaged
from elasticdl.shared.storage import display
from elasticdl.shared.words import count, moment


class DamagedRow(TypedDict):
    """A damaged object of a snapshot; all but ``ps`` and ``problem`` are paths in the job's storage.

    ``instead`` is the snapshot that the ps used; empty if the audit found the damage.
    """

    ps: str
    snapshot: str
    object: str
    problem: str
    instead: str


def damaged_rows(state: State) -> list[DamagedRow]:
    """One row for each damaged object, in the order of detection."""
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
    """A message about a damaged object."""
    damage = f"A snapshot of {event.ps} is damaged: {display(event.object)} {event.problem}."
    return f"{damage} {event.ps} uses {display(event.instead)} instead." if event.instead else damage


class LostRow(TypedDict):
    """A lost part of the log; times in seconds since the epoch, null if unknown."""

    resumed_s: float
    after_s: float | None
    until_s: float | None
    records: int | None


def lost_rows(state: State) -> list[LostRow]:
    """One row for each part of the log that was missing at a resume."""
    return [lost_row(resumed_s, lost) for resumed_s, lost in state.lost_logs]


def lost_row(resumed_s: float, lost: LostLog) -> LostRow:
    """The part of the log that was missing at a resume at ``resumed_s``."""
    return LostRow(
        resumed_s=resumed_s,
        after_s=lost.after_s or None,
        until_s=lost.until_s or None,
        records=lost.records or None,
    )


def lost_text(row: LostRow) -> str:
    """A message about a lost part of the log."""
    begins = f"after {moment(row['after_s'])}" if row["after_s"] else "from the start of the job"
    ends = moment(row["until_s"]) if row["until_s"] else f"some time before {moment(row['resumed_s'])}"
    records = f" ({count(row['records'], 'record')})" if row["records"] else ""
    resumed = moment(row["resumed_s"])
    return (
        f"Part of the event log is lost: {begins} until {ends}{records}. "
        f"The job resumed at {resumed} from the ledgers in its snapshots."
    )


class UnreadableRow(TypedDict):
    """A message on the bus that can't be read: its number in its stream, who sent or found it, subject and reason."""

    seq: int
    sender: str
    subject: str
    reason: str


class UnreadableFacts(TypedDict):
    """The messages that can't be read: how many, and the first ones."""

    count: int
    first: list[UnreadableRow]


def unreadable_facts(state: State) -> UnreadableFacts:
    """The messages on the bus that can't be read."""
    found = state.unreadable_messages
    rows = [
        UnreadableRow(
            seq=each.message.seq, sender=each.sender, subject=each.message.subject, reason=each.message.reason
        )
        for each in found.first
    ]
    return UnreadableFacts(count=found.count, first=rows)


def unreadable_text(sender: str, message: MessageUnreadable) -> str:
    """A message about a message that can't be read."""
    return f"Message {message.seq} on {message.subject} (from {sender}) can't be read and is skipped: {message.reason}"


def unreadable_lines(state: State) -> Iterator[str]:
    """Messages about the first messages that can't be read, and how many there are besides."""
    found = state.unreadable_messages
    for each in found.first:
        yield unreadable_text(each.sender, each.message)
    if found.count > len(found.first):
        yield f"{count(found.count, 'message')} on the bus can't be read and are skipped; the first are shown."


def incident_lines(state: State) -> Iterator[str]:
    """Messages about all incidents."""
    yield from unreadable_lines(state)
    for row in lost_rows(state):
        yield lost_text(row)
    for event in state.damaged.values():
        yield damage_text(event)
