"""When each process of a job lived, and what it did meanwhile: the rows of a timeline. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import StartPod
from elasticdl.shared.messages.events import LogRecord, TaskFinished
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import MASTER, PodName, Service
from elasticdl.views.points import ORDERED_ENDS

SPANS_MAX = 20_000
"""Spans of work that are kept for a timeline; how many more there are is told."""


@dataclass(slots=True, kw_only=True)
class Span:
    """What a process did during some time.

    Attributes:
        kind: ``pending`` (also as a spare), ``starting``, ``running``, ``work`` (on tasks), ``away`` (it was lost) or
            ``ended``.
        start_s, end_s: seconds since 1970; the end is 0 while it lasts.
        start_seq, end_seq: the records that say so.
        text: for people: the tasks, or the reason.
    """

    process: PodName
    kind: str
    start_s: float
    start_seq: int
    end_s: float = 0.0
    end_seq: int = 0
    text: str = ""


class Processes:
    """Collects the spans of all processes, record by record."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: dict[PodName, Service] = {}
        self._open: dict[PodName, Span] = {}
        self._work_since: dict[PodName, float] = {}
        self._works = 0

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        envelope, event, seq = record.envelope, record.envelope.event, record.seq
        time_s = envelope.time_s
        match event:
            case events.TermStarted():
                self._begin(MASTER, Service.MASTER, "running", record, text=f"term {event.term}")
            case events.Decided():
                for command in event.commands:
                    if isinstance(command, StartPod):
                        self._begin(command.pod, command.service, "starting", record)
            case events.PodPending():
                self._begin(event.pod, event.service, "pending", record, text=event.reason)
            case events.PodStarted():
                self._begin(event.pod, event.service, "starting", record)
            case events.ModelBuilt() | events.WorkerStarted() | events.PsStarted():
                waits = isinstance(event, events.ModelBuilt)
                kind, text = ("pending", "waits to be promoted") if waits else ("running", "")
                self._begin(envelope.name, envelope.service, kind, record, text=text)
                self._work_since[envelope.name] = time_s
            case events.PodExited():
                kind = "ended" if event.cause in ORDERED_ENDS else "away"
                self._begin(event.pod, event.service, kind, record, text=event.cause.value)
            case events.TaskFinished() | events.TasksFinished():
                tasks = [str(each.task) for each in events.one_by_one(event) if isinstance(each, TaskFinished)]
                since_s = self._work_since.get(envelope.name, time_s)
                self._work_since[envelope.name] = time_s
                self._add_work(envelope.name, since_s, record, ", ".join(tasks[:3]))
            case RunMeasured() if event.ended_s:
                for span in self._open.values():
                    span.end_s, span.end_seq = time_s, seq
                self._open.clear()
            case _:
                pass

    def _begin(self, name: PodName, service: Service, kind: str, record: LogRecord, *, text: str = "") -> None:
        time_s, seq = record.envelope.time_s, record.seq
        self.services[name] = service
        if before := self._open.get(name):
            if before.kind == kind and before.text == text:
                return
            before.end_s, before.end_seq = max(time_s, before.start_s), seq
        self._open[name] = span = Span(process=name, kind=kind, start_s=time_s, start_seq=seq, text=text)
        self.spans.append(span)

    def _add_work(self, name: PodName, since_s: float, record: LogRecord, text: str) -> None:
        time_s, seq = record.envelope.time_s, record.seq
        self._works += 1
        if self._works > SPANS_MAX:
            return
        self.spans.append(
            Span(
                process=name,
                kind="work",
                start_s=min(since_s, time_s),
                start_seq=seq,
                end_s=time_s,
                end_seq=seq,
                text=text,
            )
        )

    @property
    def left_out(self) -> int:
        """How many spans of work are not among the spans."""
        return max(0, self._works - SPANS_MAX)
