"""Log records as text, one line each, and the history of one task. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.words import time_of_day

_LONG = frozenset({"spec", "ledgers", "states", "log_tail", "traceback", "notes", "reply", "owners"})
"""Fields that are too long for a line."""
_WHOLE_MIN = 1e6
"""From here on numbers, such as times since 1970, are not rounded to a few digits."""
_VALUE_CHARS_MAX = 80


def one_line(record: LogRecord) -> str:
    """``#12 09:31:02.123 worker-0 TaskFinished task=train 3 ...``."""
    envelope = record.envelope
    return f"#{record.seq} {time_of_day(envelope.time_s)} {envelope.name} {event_text(envelope.event)}"


def event_text(event: events.Event) -> str:
    """An event's name and fields."""
    if isinstance(event, events.Decided):
        return f"Decided term={event.term} after=#{event.after_seq}: " + "; ".join(
            [*map(command_text, event.commands), *(f"reason: {reason}" for reason in event.reasons)]
        )
    if isinstance(event, events.JobSubmitted):
        plan = event.spec.plan
        return f"JobSubmitted job={event.spec.job} plan={plan.fingerprint} tasks={plan.tasks} batches={plan.batches}"
    if isinstance(event, events.TasksTaken | events.TasksFinished):
        return f"{type(event).__name__} " + "; ".join(map(fields_text, events.one_by_one(event)))
    return fields_text(event)


def command_text(command: commands.Command) -> str:
    """A command's name and fields."""
    if isinstance(command, commands.Dispatch):
        again = " again" if command.again else ""
        return f"Dispatch {command.dispatch}{again} {command.purpose.value} {_ranges(command.tasks)}"
    return fields_text(command)


def record_facts(record: LogRecord) -> dict[str, Any]:
    """``events --json``: a record with all fields of its event."""
    envelope = record.envelope
    return {"seq": record.seq, "time_s": envelope.time_s, "name": envelope.name, "event": envelope.event}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One line of the history of a task; ``time_s``: its time, seconds since the epoch."""

    seq: int
    time_s: float
    name: str
    text: str

    def __str__(self) -> str:
        return f"#{self.seq} {time_of_day(self.time_s)} {self.name}: {self.text}"


def task_history(records: Iterable[LogRecord], task: TaskRef) -> Iterator[HistoryEntry]:
    """The events of one task, in the order of the log."""
    replies: set[str] = set()
    for record in records:
        envelope = record.envelope
        for event in events.one_by_one(envelope.event):
            for text in _about(event, task, replies):
                yield HistoryEntry(seq=record.seq, time_s=envelope.time_s, name=envelope.name, text=text)


def _about(event: events.Event, task: TaskRef, replies: set[str]) -> Iterator[str]:
    match event:
        case events.Decided():
            for command in event.commands:
                yield from _command_about(command, task, replies)
        case events.TaskTaken() if event.task == task:
            replies.add(event.reply)
            yield f"received the task (dispatch {event.dispatch}, attempt {event.attempt})"
        case events.TaskFinished() if event.task == task:
            took_s = event.times.total_s
            yield f"finished the task in {took_s:.3f} s: {event.batches} batches, {event.records} records computed"
        case events.TaskReturned() if event.task == task:
            yield f"returned the task: {event.reason}"
        case events.TaskFailed() if event.task == task:
            yield f"failed at batch {event.batch} ({event.kind.value}): {event.message}"
        case events.PodExited():
            for held in event.running_batches:
                if held.task == task:
                    yield f"{event.pod} exited ({event.cause.value}) while computing batch {held.batch}"
        case events.LedgersRead():
            groups = [group for group in event.ledgers if task.purpose.value == "train"]
            finished = sum(any(start <= task.number < end for start, end in group.ledger.finished) for group in groups)
            if groups:
                yield f"audit: finished in {finished} of {len(groups)} ledgers of {event.ps}"
        case _:
            pass


def _command_about(command: commands.Command, task: TaskRef, replies: set[str]) -> Iterator[str]:
    match command:
        case commands.Dispatch() if command.purpose is task.purpose:
            if any(start <= task.number < end for start, end in command.tasks):
                yield f"dispatched {'again ' if command.again else ''}(dispatch {command.dispatch})"
        case commands.ReturnDelivery(reply=reply) if reply in replies:
            yield "returned the task to the queue, because its worker is gone"
        case _:
            pass


def fields_text(value: Any) -> str:
    """The name of a dataclass, and its fields without those that are empty or long."""
    facts = [
        f"{field.name}={value_text(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if field.name not in _LONG and not _is_empty(getattr(value, field.name))
    ]
    return " ".join([type(value).__name__, *facts])


def _is_empty(value: object) -> bool:
    return value is None or value in ("", ()) or (isinstance(value, Mapping) and not value)


def value_text(value: object) -> str:
    """A value of a field in one line: enumerations as their values, numbers rounded, long texts cut."""
    match value:
        case Enum():
            return str(value.value)
        case float():
            return f"{value:.6g}" if abs(value) < _WHOLE_MIN else f"{value:.3f}"
        case Mapping():
            return "{" + ", ".join(f"{name}: {value_text(each)}" for name, each in sorted(value.items())) + "}"
        case events.RunningBatch():
            return f"batch {value.batch} of {value.task}"
        case (events.RunningBatch(), *_):
            return ", ".join(map(value_text, value))
        case commands.RingMember():
            return value.worker
        case (commands.RingMember(), *_):
            return f"({', '.join(map(value_text, value))})"
        case _:
            text = " ".join(str(value).split())
            return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 3] + "..."


def _ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{start}" if end == start + 1 else f"{start}-{end - 1}" for start, end in ranges)
