"""The decisions of a job's masters, one by one, with the state that each was taken in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from elasticdl.master.core.fold import Fold
from elasticdl.master.core.state import State
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.records import command_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision, as JSON values.

    Attributes:
        state: of the job, before it.
        finished: training tasks that were finished; ``tasks``: all of them.
        workers, ps: running ones.
    """

    seq: int
    time_s: float
    state: str
    finished: int
    tasks: int
    workers: int
    ps: int
    commands: tuple[str, ...]
    reasons: tuple[str, ...]


def each_decision(records: Iterable[LogRecord], show: Callable[[Decision], None]) -> None:
    """Fold a log, and show each decision before it is applied."""
    folding = Fold(before_decision=lambda state, record, decided: show(_decision(state, record, decided)))
    for record in records:
        folding.take(record)


def _decision(state: State, record: LogRecord, decided: Decided) -> Decision:
    progress = progress_snapshot(state, {}, record.envelope.time_s, 0.0)
    return Decision(
        seq=record.seq,
        time_s=record.envelope.time_s,
        state=state.job_state.value,
        finished=len(state.training.complete) if state.training else 0,
        tasks=state.plan.tasks if state.training else 0,
        workers=progress.workers[0],
        ps=progress.ps[0],
        commands=tuple(map(command_text, decided.commands)),
        reasons=decided.reasons,
    )
