"""A real OpenTelemetry collector takes the trace of a job: each span with its parent and its times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.contract.monitoring.test_prometheus_server import exported
from tests.contract.servers import collector
from tests.unit.views.recorded import job_of, recorded

from elasticdl.cli.commands.events import EventQuery
from elasticdl.cli.commands.looking.trace import send_trace
from elasticdl.cli.jobs.exported import ExportedJobHandle
from elasticdl.shared.messages.events import LogRecord, TaskFinished, TaskTaken, one_by_one

Span = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> Path:
    found = collector.binary()
    if found is None:
        pytest.skip("the OpenTelemetry collector is not built: make otel-collector")
    return found


def test_a_collector_has_the_spans_of_a_job_under_their_parents(program: Path, tmp_path: Path) -> None:
    records = recorded("worker-killed")
    path = exported("worker-killed", tmp_path)
    with collector.collector(program, tmp_path) as collected:
        for _ in range(2):
            send_trace(ExportedJobHandle(path), collected.address, EventQuery())
    spans, services = received(collected.requests)
    assert {"elasticdl", "elasticdl-master", "elasticdl-ps", "elasticdl-worker"} == services
    assert len({span["traceId"] for span in spans.values()}) == 1

    (root,) = [span for span in spans.values() if not span.get("parentSpanId")]
    assert root["name"] == f"job {job_of(records)}"
    assert times_s(root) == pytest.approx((records[0].envelope.time_s, records[-1].envelope.time_s), abs=1e-6)
    epochs = [span for span in spans.values() if span["name"].startswith("epoch ")]
    assert {span["name"] for span in epochs} == {"epoch 1", "epoch 2"}
    assert {span["parentSpanId"] for span in epochs} == {root["spanId"]}

    for name, (taken_s, finished_s) in trained(records).items():
        (task,) = [span for span in spans.values() if span["name"] == name]
        assert times_s(task) == pytest.approx((taken_s, finished_s), abs=2e-6)
        assert spans[task["parentSpanId"]] in epochs
        parts = [span for span in spans.values() if span.get("parentSpanId") == task["spanId"]]
        assert "compute" in {span["name"] for span in parts}
        for inner, outer in [*((part, task) for part in parts), (task, spans[task["parentSpanId"]])]:
            assert times_s(outer)[0] - 2e-6 <= times_s(inner)[0]
            assert times_s(inner)[1] <= times_s(outer)[1] + 2e-6


def received(requests: list[dict[str, Any]]) -> tuple[dict[str, Span], set[str]]:
    """Spans by their ids, and the names of the services. A span that arrived again is the same."""
    spans: dict[str, Span] = {}
    services = set()
    for each in (resource for request in requests for resource in request["resourceSpans"]):
        services |= {
            found["value"]["stringValue"] for found in each["resource"]["attributes"] if found["key"] == "service.name"
        }
        for span in each["scopeSpans"][0]["spans"]:
            assert spans.setdefault(span["spanId"], span) == span
    return spans, services


def times_s(span: Span) -> tuple[float, float]:
    """When a span began and ended, in seconds since 1970."""
    return int(span["startTimeUnixNano"]) / 1e9, int(span["endTimeUnixNano"]) / 1e9


def trained(records: list[LogRecord]) -> dict[str, tuple[float, float]]:
    """When each training task was taken and finished, for those that were taken once."""
    taken: dict[str, list[float]] = {}
    found = {}
    for record in records:
        for event in one_by_one(record.envelope.event):
            name = str(getattr(event, "task", ""))
            if isinstance(event, TaskTaken):
                taken.setdefault(name, []).append(record.envelope.time_s)
            elif isinstance(event, TaskFinished) and name.startswith("train") and len(taken[name]) == 1:
                found[name] = taken[name][0], record.envelope.time_s
    assert len(found) > 10
    return found
