"""Where the time of one task went, from its first dispatch to its last result. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import LogRecord, TaskFinished

QUEUED = "waiting in the queue"
HELD = "taken, while the worker finished other tasks or waited"
LOST = "in a worker that ended before it reported the task"
RETURNED = "waiting after a worker had returned it"
FAILED = "waiting after an attempt had failed"
DONE = "finished, until it was dispatched again"
_PARTS = (
    ("compute_us", "computing"),
    ("read_us", "reading records"),
    ("feed_us", "feeding"),
    ("pull_us", "pulling parameters"),
    ("push_us", "pushing gradients"),
    ("wait_us", "waiting for other workers' updates"),
    ("export_us", "exporting"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a task was in for some time; ``seq``: the event that ended it, ``process``: the worker, or empty."""

    what: str
    seconds: float
    seq: int
    process: str = ""


def task_spans(records: Iterable[LogRecord], task: TaskRef) -> list[Span]:
    """The parts of a task's time, one after the other; they sum to the time from its dispatch to its last event."""
    spans: list[Span] = []
    since_s, doing, holder = 0.0, "", ""
    for record in records:
        for what, process, finished in _changes(record, task, holder):
            now_s = max(record.envelope.time_s, since_s)
            if doing:
                spans += _ended(doing, holder, now_s - since_s, record.seq, finished)
            since_s, doing, holder = now_s, what, process
    return spans


def _ended(doing: str, holder: str, seconds: float, seq: int, finished: TaskFinished | None) -> Iterator[Span]:
    if finished is None or doing != HELD:
        yield Span(what=doing, seconds=seconds, seq=seq, process=holder)
        return
    # A worker reads and pulls ahead, so parts overlap: if they are more than the time, computing comes first.
    left = seconds
    for name, what in _PARTS:
        spent_s = min(left, getattr(finished.times, name) / 1e6)
        left -= spent_s
        if spent_s > 0.0:
            yield Span(what=what, seconds=spent_s, seq=seq, process=holder)
    if left > 0.0:
        yield Span(what=HELD, seconds=left, seq=seq, process=holder)


def _changes(record: LogRecord, task: TaskRef, holder: str) -> Iterator[tuple[str, str, TaskFinished | None]]:
    """What the task is in after a record, its worker, and its result if the record is one."""
    name = record.envelope.name
    for event in events.one_by_one(record.envelope.event):
        match event:
            case events.Decided():
                if any(_dispatches(command, task) for command in event.commands):
                    yield QUEUED, "", None
            case events.TaskTaken() if event.task == task:
                yield HELD, name, None
            case events.TaskFinished() if event.task == task:
                yield DONE, "", event
            case events.TaskReturned() if event.task == task:
                yield RETURNED, "", None
            case events.TaskFailed() if event.task == task:
                yield FAILED, "", None
            case events.PodExited() if event.pod == holder:
                yield LOST, holder, None
            case _:
                pass


def _dispatches(command: commands.Command, task: TaskRef) -> bool:
    return (
        isinstance(command, commands.Dispatch)
        and command.purpose is task.purpose
        and any(start <= task.number < end for start, end in command.tasks)
    )


def task_spans_facts(job: str, task: TaskRef, spans: Iterable[Span]) -> dict[str, Any]:
    """The parts as JSON values."""
    each = list(spans)
    total_s = sum(span.seconds for span in each)
    return {
        "job": job,
        "task": task.number,
        "purpose": task.purpose.value,
        "seconds": round(total_s, 6),
        "parts": [
            {
                "what": span.what,
                "seconds": round(span.seconds, 6),
                "percent": round(100.0 * span.seconds / total_s, 3) if total_s else 0.0,
                "process": span.process,
                "seq": span.seq,
            }
            for span in each
        ],
    }
