"""Verification: re-runs the decisions of a log and compares them with the recorded ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from elasticdl.master.core import State, decide
from elasticdl.master.core.fold import Fold
from elasticdl.shared.messages.events import Decided, LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification.

    Attributes:
        last_seq: sequence number of its last record.
        decisions: number of decisions that were re-run.
        differences: one line for each decision that differs now.
    """

    state: State
    last_seq: int
    decisions: int
    differences: tuple[str, ...]


async def verify(records: AsyncIterator[LogRecord]) -> Verification:
    """Fold a log from its beginning, and re-run each decision of its masters.

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
        """Compare one decision with the present code's."""
        decided = record.envelope.event
        if not isinstance(decided, Decided):
            return
        self.decisions += 1
        again = decide(state, decided.now_s)
        if again.commands != decided.commands:
            self.differences.append(f"#{record.seq}: recorded {_text(decided.commands)}, now {_text(again.commands)}")


def _text(commands: tuple[object, ...]) -> str:
    return ", ".join(str(command) for command in commands) or "nothing"
