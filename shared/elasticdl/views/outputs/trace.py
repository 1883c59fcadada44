"""A job as a trace in the trace event format of Chrome, which Perfetto opens. Pure.

Each process of the job is a process of the trace: its phases are the first track, its tasks the next ones, because a
worker holds several tasks at a time. Times are microseconds since the first event. The threads of a process, which are
its tracks, count from 1: Perfetto takes thread 0 for the thread that has the number of the process.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import LogRecord, TaskFinished
from elasticdl.shared.messages.times import PARTS, BatchTimes, Times, us_of
from elasticdl.shared.names import MASTER, PodName, Purpose, Service
from elasticdl.views.processes import Processes
from elasticdl.views.records import command_text

SPANS_MAX = 1_000_000
"""Most events of a trace that are held at a time: Perfetto opens some 200 MB of JSON."""
TOO_LARGE = "which no viewer opens"
_ORDER = (Service.MASTER, Service.LAUNCHER, Service.PS, Service.WORKER)
_LABEL_CHARS_MAX = 200
_PHASES = 1
"""Thread with the phases of a process; its tasks have the next ones."""
_BATCHES = 1 << 12
"""What is added to the thread of a task for the batches of it whose times are known."""


@dataclass(slots=True)
class _Lanes:
    """Tracks of a worker: tasks that overlap are on different ones."""

    free: list[int] = field(default_factory=list)
    number: int = 0
    held: dict[TaskRef, tuple[int, float]] = field(default_factory=dict)

    def take(self, task: TaskRef, time_s: float) -> None:
        if task in self.held:  # A delivery that the worker was given twice.
            return
        if not self.free:
            self.number += 1
            heapq.heappush(self.free, self.number)
        self.held[task] = heapq.heappop(self.free), time_s

    def leave(self, task: TaskRef) -> tuple[int, float] | None:
        found = self.held.pop(task, None)
        if found is not None:
            heapq.heappush(self.free, found[0])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """A span of a trace; its parts follow it.

    Attributes:
        track: 0 has the phases of the process.
        start_us, end_us: microseconds since the first event.
        task: the task whose time it is; None: it is no task.
        depth: 1: it is a part of the task before it; 2: of the batch before it.
    """

    process: PodName
    track: int
    name: str
    start_us: int
    end_us: int
    arguments: Mapping[str, Any]
    task: TaskRef | None
    depth: int


class Trace:
    """Collects a trace, record by record.

    Raises:
        UserError: there are too many spans for one file.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._processes = Processes()
        self._lanes: dict[PodName, _Lanes] = {}
        self._pids: dict[PodName, int] = {}
        self._began_s: float | None = None
        self._now_s = 0.0
        self._batches = 0

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        envelope = record.envelope
        if self._began_s is None:
            self._began_s = envelope.time_s
        self._now_s = max(self._now_s, envelope.time_s)
        self._processes.take(record)
        match envelope.event:
            case events.Decided() as decided:
                commands = "; ".join(map(command_text, decided.commands))
                self._instant(MASTER, commands, record, reasons=", ".join(decided.reasons))
            case events.TaskTaken() | events.TasksTaken() | events.TaskFinished() | events.TasksFinished():
                for each in events.one_by_one(envelope.event):
                    self._reported(each, record)
            case events.TaskFailed() | events.TaskReturned() as ended:
                self._left(envelope.name, ended.task, type(ended).__name__, record)
            case events.PodExited() as exit_:
                for task in list(self._lanes.get(exit_.pod, _Lanes()).held):
                    self._left(exit_.pod, task, f"lost: {exit_.cause.value}", record)
            case _:
                pass
        if len(self._events) > SPANS_MAX:
            raise UserError(
                f"the trace has more than {SPANS_MAX:,} spans, {TOO_LARGE} as JSON",
                hint="Give it a name that ends with .pftrace, or choose a part of the log with --since and --until.",
            )

    def pieces(self, job: str) -> Iterator[str]:
        """The JSON text, piece by piece."""
        others = list(self.rest())  # They may name further processes.
        whole = [*self._names(), *others, *self._events]
        yield f'{{"displayTimeUnit":"ms","otherData":{{"job":{json.dumps(job)}}},"traceEvents":[\n'
        for number, each in enumerate(whole):
            yield (",\n" if number else "") + json.dumps(each, separators=(",", ":"))
        yield "\n]}\n"

    def taken(self) -> list[dict[str, Any]]:
        """The events of the records that were taken since the last call, which are forgotten."""
        found, self._events = self._events, []
        return found

    def rest(self) -> Iterator[dict[str, Any]]:
        """The events that are known at the end of the log."""
        yield from self._phases()
        yield from self._open_tasks()

    def names(self) -> dict[int, PodName]:
        """The processes by their numbers."""
        return {pid: name for name, pid in self._pids.items()}

    def spans(self) -> Iterator[TraceSpan]:
        """Its spans, without instants and counters."""
        found = [*self._phases(), *self._events, *self._open_tasks()]  # They may name further processes.
        names = self.names()
        for each in found:
            if each["ph"] == "X":
                depth = _depth(each["tid"], each["name"])
                yield TraceSpan(
                    process=names[each["pid"]],
                    track=each["tid"] - _PHASES,
                    name=each["name"],
                    start_us=each["ts"],
                    end_us=each["ts"] + each["dur"],
                    arguments=each["args"],
                    task=_task_of(each["name"]) if each["tid"] > _PHASES and not depth else None,
                    depth=depth,
                )

    def service_of(self, name: PodName) -> Service | None:
        """The service of a process; None: unknown."""
        return self._processes.services.get(name)

    def _names(self) -> Iterator[dict[str, Any]]:
        services = self._processes.services
        for name, pid in self._pids.items():
            service = services.get(name)
            order = _ORDER.index(service) if service in _ORDER else len(_ORDER)
            yield {"ph": "M", "pid": pid, "tid": _PHASES, "name": "process_name", "args": {"name": name}}
            yield {"ph": "M", "pid": pid, "tid": _PHASES, "name": "process_sort_index", "args": {"sort_index": order}}
            lanes = self._lanes[name].number if name in self._lanes else 0
            tracks = range(_PHASES, _PHASES + lanes + 1)
            for tid in (*tracks, *(tid + _BATCHES for tid in tracks[1:])):
                yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread_name(tid)}}

    def _phases(self) -> Iterator[dict[str, Any]]:
        for span in self._processes.spans:
            if span.kind not in ("work", "ended"):
                end_s = span.end_s or self._now_s
                arguments = {"event": span.start_seq, "text": span.text}
                yield self._span(span.process, 0, span.kind, (span.start_s, end_s), arguments)

    def _open_tasks(self) -> Iterator[dict[str, Any]]:
        """Tasks that were taken and not finished when the log ended."""
        for name, lanes in self._lanes.items():
            for task, (lane, since_s) in lanes.held.items():
                yield self._span(name, lane, f"{task} (not finished)", (since_s, self._now_s), {})

    def _reported(self, event: events.Event, record: LogRecord) -> None:
        match event:
            case events.TaskTaken():
                lanes = self._lanes.setdefault(record.envelope.name, _Lanes())
                lanes.take(event.task, record.envelope.time_s)
            case TaskFinished():
                self._finished(event, record)
            case _:
                pass

    def _finished(self, event: TaskFinished, record: LogRecord) -> None:
        name, now_s = record.envelope.name, record.envelope.time_s
        lanes = self._lanes.setdefault(name, _Lanes())
        if event.task not in lanes.held:
            lanes.take(event.task, now_s - event.times.total_s)
        lane, since_s = lanes.leave(event.task) or (1, now_s)
        arguments = {
            "event": record.seq,
            "batches": event.batches,
            "records": event.records,
            "dispatch": event.dispatch,
            "attempt": event.attempt,
        }
        self._events.append(self._span(name, lane, str(event.task), (since_s, now_s), arguments))
        self._events += self._parts(name, lane, event.times, (since_s, now_s))
        if event.sampled:
            self._events += self._batch(name, lane + _BATCHES, event.sampled, now_s)
        if event.task.purpose is Purpose.TRAIN:
            self._batches += event.batches
            counted = {"ph": "C", "name": "trained batches", "pid": self._pid(MASTER), "ts": self._us(now_s)}
            self._events.append({**counted, "args": {"batches": self._batches}})

    def _parts(self, name: PodName, lane: int, times: Times, span: tuple[float, float]) -> Iterator[dict[str, Any]]:
        """The parts of a task, one after the other until its end; they overlap, so they are shortened to fit."""
        since_s, until_s = span
        total_s = times.total_s
        scale = min(1.0, (until_s - since_s) / total_s) if total_s else 0.0
        at_s = until_s - total_s * scale
        for part, spent_us in zip(PARTS, us_of(times), strict=True):
            spent_s = spent_us / 1e6
            if spent_s and scale:
                end_s = at_s + spent_s * scale
                yield self._span(name, lane, part, (at_s, min(end_s, until_s)), {"seconds": spent_s})
                at_s = end_s

    def _batch(self, name: PodName, lane: int, sampled: BatchTimes, now_s: float) -> Iterator[dict[str, Any]]:
        """A batch and its parts, at their own times. A part that was interrupted is drawn where it ended."""
        parts = zip(us_of(sampled.ended), us_of(sampled.times), PARTS, strict=True)
        ended = sorted((now_s - ago_us / 1e6, spent_us / 1e6, part) for ago_us, spent_us, part in parts if spent_us)
        if not ended:
            return
        at_s = ended[0][0] - ended[0][1]
        yield self._span(name, lane, f"batch {sampled.batch}", (at_s, ended[-1][0]), {})
        for end_s, spent_s, part in ended:
            yield self._span(name, lane, part, (max(at_s, end_s - spent_s), end_s), {"seconds": spent_s})
            at_s = end_s

    def _left(self, name: PodName, task: TaskRef, what: str, record: LogRecord) -> None:
        if found := self._lanes.setdefault(name, _Lanes()).leave(task):
            lane, since_s = found
            span = since_s, record.envelope.time_s
            self._events.append(self._span(name, lane, f"{task} ({what})", span, {"event": record.seq}))

    def _instant(self, name: PodName, text: str, record: LogRecord, **arguments: str) -> None:
        label = text if len(text) <= _LABEL_CHARS_MAX else f"{text[: _LABEL_CHARS_MAX - 3]}..."
        place = {"ph": "i", "s": "t", "pid": self._pid(name), "tid": _PHASES, "ts": self._us(record.envelope.time_s)}
        self._events.append({**place, "name": label, "args": {"event": record.seq, **arguments}})

    def _span(
        self, name: PodName, lane: int, label: str, times_s: tuple[float, float], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        since_us, until_us = map(self._us, times_s)
        return {
            "ph": "X",
            "pid": self._pid(name),
            "tid": _PHASES + lane,
            "ts": since_us,
            "dur": max(0, until_us - since_us),
            "name": label,
            "args": arguments,
        }

    def _pid(self, name: PodName) -> int:
        return self._pids.setdefault(name, len(self._pids) + 1)

    def _us(self, time_s: float) -> int:
        return max(0, round(1e6 * (time_s - (self._began_s or 0.0))))


def thread_name(tid: int) -> str:
    """What a track shows."""
    if tid > _BATCHES:
        return f"batches of tasks {tid - _PHASES - _BATCHES}"
    return f"tasks {tid - _PHASES}" if tid > _PHASES else "phase"


def _depth(tid: int, name: str) -> int:
    if tid > _BATCHES:
        return 2 if name in PARTS else 1
    return int(tid > _PHASES and name in PARTS)


def _task_of(name: str) -> TaskRef | None:
    """The task that a span is called after: ``train 17``, ``train 17 (not finished)``."""
    purpose, _, rest = name.partition(" ")
    number = rest.partition(" ")[0]
    return TaskRef(purpose=Purpose(purpose), number=int(number)) if number.isdigit() else None


def trace_of(records: Iterable[LogRecord]) -> Trace:
    """The trace of a log, or of a part of it."""
    trace = Trace()
    for record in records:
        trace.take(record)
    return trace
