"""A whole log to a state."""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.state import State
from elasticdl.shared.events import Decided, LogRecord


def in_fold_order(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Order records as the live master folded them: a decision right after the last input that it knew.

    Other services go on appending while a decision is on its way to the log, so its place in the log may be later.
    """
    return sorted(records, key=_fold_key)


def _fold_key(record: LogRecord) -> tuple[int, int, int]:
    event = record.envelope.event
    if isinstance(event, Decided):
        return event.after_seq, 1, record.seq
    return record.seq, 0, record.seq


def fold(records: Iterable[LogRecord]) -> State:
    """Fold a log (or its beginning) into a state."""
    state = State()
    for record in in_fold_order(records):
        evolve(state, record)
    return state
