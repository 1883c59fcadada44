from __future__ import annotations

import io
import json
from typing import Any

import structlog

from elasticdl.shared.names import Incarnation, JobId, PodName, Service
from elasticdl.shared.process import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def configure(stream: io.StringIO, level: str = "INFO") -> Any:
    logs.configure(
        service=Service.PS,
        job=JobId("mnist-1a2b3c"),
        pod=PodName("ps-0"),
        incarnation=Incarnation("0123456789ab"),
        level=level,
        stream=stream,
    )
    return structlog.get_logger()


def test_json_lines_with_names() -> None:
    stream = io.StringIO()
    configure(stream).info("snapshot.taken", step=3, cause="m.7")
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "service": "ps",
        "job": "mnist-1a2b3c",
        "pod": "ps-0",
        "incarnation": "0123456789ab",
        "event": "snapshot.taken",
        "level": "info",
        "step": 3,
        "cause": "m.7",
    }


def test_a_terminal_gets_readable_lines() -> None:
    stream = Terminal()
    configure(stream).warning("snapshot.late", seconds=9)
    assert "snapshot.late" in stream.getvalue()
    assert "ps-0" in stream.getvalue()
    assert "{" not in stream.getvalue()


def test_less_severe_events_are_dropped() -> None:
    stream = io.StringIO()
    log = configure(stream, level="WARNING")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_tracebacks_stay_on_one_line() -> None:
    stream = io.StringIO()
    log = configure(stream)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["exception"][0]["exc_value"] == "broken"
