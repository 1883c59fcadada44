"""Traces that Perfetto can draw, and pages that need nothing but a browser."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.histories.long import long_log
from tests.unit.views.recorded import LOGS, recorded

from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import LogRecord, TaskTaken
from elasticdl.shared.proto import perfetto_pb2 as proto
from elasticdl.views.outputs import perfetto
from elasticdl.views.outputs import trace as tracing
from elasticdl.views.outputs.page import Page, Table, by_name, sampled
from elasticdl.views.outputs.perfetto import PerfettoTrace
from elasticdl.views.outputs.trace import trace_of
from elasticdl.views.wall_time.fold import wall_time


def trace(records: list[LogRecord]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads("".join(trace_of(records).pieces("job")))["traceEvents"]
    return found


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_spans_of_a_track_nest(path: Path) -> None:
    records = recorded(path.stem)
    for length in (1, 30, len(records)):
        tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for each in trace(records[:length]):
            if each["ph"] == "X":
                span = each["ts"], each["ts"] + each["dur"]
                tracks.setdefault((each["pid"], each["tid"]), []).append(span)
        for spans in tracks.values():
            ends: list[int] = []
            for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
                while ends and ends[-1] <= start:
                    ends.pop()
                assert not ends or end <= ends[-1] + 2  # Times are rounded to microseconds.
                ends.append(end)


def test_every_task_and_every_process_is_there() -> None:
    found = trace(recorded("worker-killed"))
    names = {each["args"]["name"] for each in found if each["name"] == "process_name"}
    assert names == {"master", "ps-0", "worker-0", "worker-1"}
    tasks = {each["name"] for each in found if each["ph"] == "X"}
    assert {f"train {number}" for number in range(24)} <= tasks
    assert "train 8 (lost: preempted)" in tasks
    assert {"read", "compute", "push", "away", "running"} <= tasks
    assert sum(each["ph"] == "i" for each in found) == 11
    assert max(each["args"]["batches"] for each in found if each["ph"] == "C") == 740  # Its worker reported no more.


def test_a_task_that_a_worker_takes_twice_keeps_its_track() -> None:
    records = recorded("worker-killed")
    place = next(place for place, each in enumerate(records) if isinstance(each.envelope.event, TaskTaken))
    plain = {each["tid"] for each in trace(records) if each["ph"] == "X"}
    assert {each["tid"] for each in trace([*records[: place + 1], *records[place:]]) if each["ph"] == "X"} == plain


def test_too_large_a_trace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "SPANS_MAX", 100)
    with pytest.raises(UserError, match="no viewer opens"):
        trace_of(long_log(100))
    pieces = PerfettoTrace().pieces(long_log(100))
    assert sum(map(len, pieces)) > 10_000  # Its spans are not held.
    monkeypatch.setattr(perfetto, "BYTES_MAX", 10_000)
    with pytest.raises(UserError, match="no viewer opens") as refused:
        list(PerfettoTrace().pieces(long_log(100)))
    assert "--since" in str(refused.value)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_perfetto_gets_the_spans_in_the_order_of_their_nesting(path: Path) -> None:
    records = recorded(path.stem)
    whole = proto.Trace.FromString(b"".join(PerfettoTrace().pieces(records)))
    described: set[int] = set()
    tracks: dict[int, list[tuple[int, proto.TrackEvent]]] = {}
    for packet in whole.packet:
        described.add(packet.track_descriptor.uuid)
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in described
            tracks.setdefault(packet.track_event.track_uuid, []).append((packet.timestamp, packet.track_event))
    spans: Counter[str] = Counter()
    for events in tracks.values():
        open_: list[str] = []
        for _, event in sorted(events, key=lambda each: each[0]):
            if event.type == proto.TYPE_SLICE_BEGIN:
                open_.append(event.name)
            elif event.type == proto.TYPE_SLICE_END:
                spans[open_.pop()] += 1
        assert open_ == []
    assert spans == Counter(each["name"] for each in trace(records) if each["ph"] == "X")


class _Tags(HTMLParser):
    """The tags of a page, and the depth at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br", "polyline"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "polyline":
            assert self._open.pop() == tag


def test_a_page_is_complete_and_loads_nothing() -> None:
    records = recorded("ps-killed")
    found = wall_time(records)
    page = Page(
        job="a <b> & c",
        state="failed",
        summary=[("message", "<script>alert(1)</script>")],
        wall_time=found,
        texts={seq: f"#{seq} <i>" for part in found.parts for seq, _ in part.evidence},
        curves=by_name([("loss", 0.0, 1.0), ("loss", 1.0, float("nan")), ("loss", 2.0, 0.5), ("one", 0.0, 1.0)]),
        tables=[Table(title="T", columns=("a", "b"), rows=[("<x>", "1")]), Table(title="empty", columns=(), rows=[])],
        made="made",
    )
    text = page.html()
    tags = _Tags(text)
    assert not {"script", "link", "img", "iframe", "i", "x"} & set(tags.tags)
    assert not {"src", "href", "onload"} & tags.attributes
    assert "&lt;script&gt;" in text
    assert text.count("<svg") == 1
    assert re.search(r'aria-label="loss: from 1 to 0.5', text)
    assert "empty" not in text


def test_sampling_keeps_both_ends() -> None:
    points = [(float(step), 0.0) for step in range(1001)]
    assert len(sampled(points, 100)) <= 102
    assert (sampled(points, 100)[0], sampled(points, 100)[-1]) == (points[0], points[-1])


def test_pieces_can_be_compressed() -> None:
    data = gzip.compress("".join(trace_of(recorded("plain")).pieces("j")).encode())
    assert json.loads(gzip.decompress(data))["otherData"] == {"job": "j"}
