"""A trace for OpenTelemetry is a tree, and what a collector's own schema reads."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.views.recorded import LOGS, job_of, recorded

from elasticdl.shared.messages.events import LogRecord, TaskFinished
from elasticdl.shared.messages.times import BatchTimes, Times
from elasticdl.views.outputs import otlp
from elasticdl.views.outputs.otlp import otlp_trace


def spans(records: list[LogRecord]) -> dict[str, dict[str, Any]]:
    found = {}
    for request in otlp_trace(job_of(records), records).requests():
        for resource in request["resourceSpans"]:
            for span in resource["scopeSpans"][0]["spans"]:
                assert span["spanId"] not in found
                found[span["spanId"]] = span
    return found


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_spans_are_a_tree_with_the_job_as_its_root(path: Any) -> None:
    records = recorded(path.stem)
    found = spans(records)
    roots = [span for span in found.values() if "parentSpanId" not in span]
    assert [span["name"] for span in roots] == [f"job {job_of(records)}"]
    assert len({span["traceId"] for span in found.values()}) == 1
    for span in found.values():
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert "parentSpanId" not in span or span["parentSpanId"] in found
    assert spans(records) == found, "the same log gives the same trace"


def test_a_part_is_in_its_task_and_a_task_in_its_epoch() -> None:
    found = spans(recorded("worker-killed"))
    names = {each["name"] for each in found.values()}
    assert {"epoch 1", "train 0", "compute", "train 8 (lost: preempted)", "running"} <= names
    parts = [each for each in found.values() if each["name"] == "compute"]
    assert parts
    for part in parts:
        task = found[part["parentSpanId"]]
        assert task["name"].split()[0] in ("train", "evaluate", "merge", "export")
        if task["name"].startswith("train"):
            assert found[task["parentSpanId"]]["name"].startswith("epoch ")


def test_more_of_a_log_repeats_no_span_under_another_id() -> None:
    records = recorded("worker-killed")
    before = spans(records[: len(records) // 2])
    assert any(each["name"].endswith("(not finished)") for each in before.values())
    assert before.keys() <= spans(records).keys()


def test_requests_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "SPANS_PER_REQUEST", 10)
    records = recorded("plain")
    requests = list(otlp_trace(job_of(records), records).requests())
    sizes = [sum(len(each["scopeSpans"][0]["spans"]) for each in one["resourceSpans"]) for one in requests]
    assert max(sizes) == 10
    assert sum(sizes) == len(spans(records))


def test_the_schema_of_opentelemetry_reads_it() -> None:
    schema = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf import json_format

    records = recorded("ps-killed")
    total = 0
    for request in otlp_trace(job_of(records), records).requests():
        for resource in request["resourceSpans"]:
            for span in resource["scopeSpans"][0]["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):  # Hexadecimal, where protobuf's JSON has base64.
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        read = json_format.Parse(json.dumps(request), schema.ExportTraceServiceRequest())
        for each in read.resource_spans:
            assert each.resource.attributes[0].value.string_value.startswith("elasticdl")
            total += len(each.scope_spans[0].spans)
    assert total == len(spans(records))


def test_the_parts_of_a_sampled_batch_have_their_own_times() -> None:
    records = recorded("plain")
    place = next(each for each, record in enumerate(records) if isinstance(record.envelope.event, TaskFinished))
    finished = records[place].envelope
    assert isinstance(finished.event, TaskFinished)
    times = {"read": 0.01, "feed": 0.02, "compute": 0.05, "push": 0.01}
    ended = {"read": 0.4, "feed": 0.38, "compute": 0.1, "push": 0.02}
    sampled = BatchTimes(batch=3, times=Times.of(times), ended=Times.of(ended))
    event = replace(finished.event, sampled=sampled)
    records[place] = replace(records[place], envelope=replace(finished, event=event))

    found = spans(records)
    (batch,) = [each for each in found.values() if each["name"] == "batch 3"]
    assert found[batch["parentSpanId"]]["name"] == str(event.task)
    parts = [each for each in found.values() if each.get("parentSpanId") == batch["spanId"]]
    assert [each["name"] for each in parts] == list(times)
    for each in parts:
        end_s = int(each["endTimeUnixNano"]) / 1e9
        assert finished.time_s - end_s == pytest.approx(ended[each["name"]], abs=1e-5)
        assert end_s - int(each["startTimeUnixNano"]) / 1e9 == pytest.approx(times[each["name"]], abs=1e-5)
    assert batch["startTimeUnixNano"] == parts[0]["startTimeUnixNano"]
    assert batch["endTimeUnixNano"] == parts[-1]["endTimeUnixNano"]
