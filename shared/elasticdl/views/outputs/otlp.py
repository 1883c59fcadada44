"""A job as an OpenTelemetry trace, in the JSON of OTLP. Pure.

The spans are those of ``trace``: job -> epoch -> task -> part of the task or batch -> part of the batch, and job ->
phase of a process. Ids follow from the log, so that the same log gives the same trace, and sending it again changes
nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages.events import JobSubmitted, LogRecord
from elasticdl.shared.names import PodName, Service, TaskId
from elasticdl.views.outputs.trace import Trace, TraceSpan

SPANS_PER_REQUEST = 1000
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_INTERNAL = 1
"""Kind of a span that is no request between services."""
_JOB_PROCESS = PodName("")
"""The process that the spans of the job and its epochs belong to: none of its own."""


@dataclass(slots=True, kw_only=True)
class _Node:
    """A span with its place in the tree; times: seconds since 1970."""

    path: str
    parent: str
    process: PodName
    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


class OtlpTrace:
    """Collects a trace, record by record. Raises as ``Trace``."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._trace = Trace()
        self._plan: Plan | None = None
        self._first_s = self._last_s = 0.0

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        if isinstance(record.envelope.event, JobSubmitted):
            self._plan = record.envelope.event.spec.plan
        time_s = record.envelope.time_s
        self._first_s = self._first_s or time_s
        self._last_s = max(self._last_s, time_s)
        self._trace.take(record)

    def requests(self) -> Iterator[dict[str, Any]]:
        """Bodies of ``POST /v1/traces``, each with at most ``SPANS_PER_REQUEST`` spans."""
        nodes = iter([self._root(), *self._nodes()])
        while some := list(islice(nodes, SPANS_PER_REQUEST)):
            by_process: dict[PodName, list[_Node]] = {}
            for node in some:
                by_process.setdefault(node.process, []).append(node)
            yield {"resourceSpans": [self._resource(process, each) for process, each in by_process.items()]}

    def _root(self) -> _Node:
        return _Node(
            path="job", parent="", process=_JOB_PROCESS, name=f"job {self._job}", start_s=self._first_s,
            end_s=self._last_s,
        )  # fmt: skip

    def _nodes(self) -> Iterator[_Node]:
        epochs: dict[int, _Node] = {}
        known: Counter[str] = Counter()
        above = [""]
        for span in self._trace.spans():
            path = _path(span)
            known[path] += 1
            path = f"{path} {known[path]}"
            start_s, end_s = (self._first_s + each / 1e6 for each in (span.start_us, span.end_us))
            parent = "job"
            if span.task is not None:
                parent = self._epoch(span, epochs, start_s, end_s) or parent
            elif span.depth:
                parent = above[span.depth - 1]
            above[span.depth :] = [path]
            yield _Node(
                path=path,
                parent=parent,
                process=span.process,
                name=span.name,
                start_s=start_s,
                end_s=end_s,
                attributes={**span.arguments, "elasticdl.track": span.track},
            )
        yield from epochs.values()

    def _epoch(self, span: TraceSpan, epochs: dict[int, _Node], start_s: float, end_s: float) -> str:
        """The path of the epoch of a training task, whose time then includes the task's; empty: it has none."""
        if self._plan is None or span.task is None or span.task.purpose.value != "train":
            return ""
        number = self._plan.epoch(TaskId(span.task.number)) + 1
        node = epochs.setdefault(
            number,
            _Node(
                path=f"epoch {number}",
                parent="job",
                process=_JOB_PROCESS,
                name=f"epoch {number}",
                start_s=start_s,
                end_s=end_s,
            ),
        )
        node.start_s, node.end_s = min(node.start_s, start_s), max(node.end_s, end_s)
        return node.path

    def _resource(self, process: PodName, nodes: list[_Node]) -> dict[str, Any]:
        service = self._trace.service_of(process)
        attributes = {
            "service.name": f"elasticdl-{service.value}" if isinstance(service, Service) else "elasticdl",
            "service.namespace": self._job,
            **({"service.instance.id": process} if process else {}),
        }
        scope = {"scope": {"name": "elasticdl"}, "spans": [self._span(node) for node in nodes]}
        return {"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [scope]}

    def _span(self, node: _Node) -> dict[str, Any]:
        parent = {"parentSpanId": self._id(node.parent, _SPAN_ID_BYTES)} if node.parent else {}
        return {
            "traceId": self._id("trace", _TRACE_ID_BYTES),
            "spanId": self._id(node.path, _SPAN_ID_BYTES),
            **parent,
            "name": node.name,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(round(node.start_s * 1e9)),
            "endTimeUnixNano": str(round(max(node.start_s, node.end_s) * 1e9)),
            "attributes": _attributes(node.attributes),
        }

    def _id(self, path: str, size_bytes: int) -> str:
        text = f"{self._job} {self._first_s} {path}"
        return hashlib.blake2b(text.encode(), digest_size=size_bytes).hexdigest()


def _path(span: TraceSpan) -> str:
    """Names a span, also in the trace of the same log when it is longer: a task that was not finished then may be."""
    what = span.name if span.task is None else str(span.task)
    return f"{span.process} {span.track} {what} {span.start_us}"


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value != ""]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def otlp_trace(job: str, records: Iterable[LogRecord]) -> OtlpTrace:
    """The trace of a log, or of a part of it."""
    trace = OtlpTrace(job)
    for record in records:
        trace.take(record)
    return trace
