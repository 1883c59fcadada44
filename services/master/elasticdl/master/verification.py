"""Deciding again: whether today's code would have decided what a log says was decided."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from elasticdl.master.core import Fold, State, decide
from elasticdl.shared.messages.events import Decided, LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of it.

    Attributes:
        state: the log folded.
        last_seq: sequence number of its last record.
        decisions: how many were decided again.
        differences: one line for each that would be another one now.
    """

    state: State
    last_seq: int
    decisions: int
    differences: tuple[str, ...]


async def verify(records: AsyncIterator[LogRecord]) -> Verification:
    """Fold a log from its beginning, and decide again wherever its masters did.

    Args:
        records: the log, in its own order.
    """
    checker = _Checker()
    folding = Fold(before_decision=checker.check)
    last_seq = 0
    async for record in records:
        folding.take(record)
        last_seq = record.seq
    return Verification(
        state=folding.finish(),
        last_seq=last_seq,
        decisions=checker.decisions,
        differences=tuple(checker.differences),
    )


class _Checker:
    def __init__(self) -> None:
        self.decisions = 0
        self.differences: list[str] = []

    def check(self, state: State, record: LogRecord) -> None:
        """Compare one decision with what would be decided now."""
        decided = record.envelope.event
        if not isinstance(decided, Decided):
            return
        self.decisions += 1
        again = decide(state, decided.now_s)
        if again.commands != decided.commands:
            self.differences.append(
                f"#{record.seq} decided {_told(decided.commands)}, now it would be {_told(again.commands)}"
            )


def _told(commands: tuple[object, ...]) -> str:
    return ", ".join(str(command) for command in commands) or "nothing"
