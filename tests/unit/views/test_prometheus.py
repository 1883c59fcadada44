"""Metrics of jobs and processes are what Prometheus' own parser reads, and what Grafana and the alerts ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.views.recorded import LOGS, job_of, recorded

from elasticdl.master.core.fold import fold
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.monitoring.exposition import Family, text_of
from elasticdl.shared.monitoring.processes import METRICS
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.views.outputs.prometheus import JobMetrics
from elasticdl.views.wall_time.fold import wall_time

MONITORING = Path(__file__).parents[3] / "deploy/monitoring"
HEARTBEATS = [
    Heartbeat(
        service=service,
        name=PodName(name),
        incarnation=Incarnation("a"),
        time_s=1.0,
        metrics=dict.fromkeys(METRICS, 2.0),
    )
    for service, name in ((Service.WORKER, "worker-0"), (Service.PS, "ps-0"))
]


def text(records: list[LogRecord], heartbeats: list[Heartbeat]) -> str:
    found = JobMetrics()
    for record in records:
        found.take(record)
    return found.text(job_of(records), fold(records), heartbeats)


def values(parsed: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(parsed)
        for sample in family.samples
    }


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_all_points_of_a_log_can_be_parsed(path: Path) -> None:
    records = recorded(path.stem)
    for length in range(1, len(records) + 1, 7):
        found = values(text(records[:length], HEARTBEATS))
        assert all(dict(labels)["training_job"] == job_of(records) for _, labels in found)
    whole = values(text(records, []))
    seconds = sum(value for (name, _), value in whole.items() if name == "elasticdl_job_cause_seconds")
    assert seconds == pytest.approx(wall_time(records).wall_s)


def test_names_follow_the_conventions() -> None:
    for family in text_string_to_metric_families(text(recorded("ps-killed"), HEARTBEATS)):
        assert re.fullmatch(r"elasticdl_(job|process|worker|ps)_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        is_counter = family.type == "counter"
        assert all(sample.name.endswith("_total") is is_counter for sample in family.samples), family.name
        assert not re.search(r"_(ms|us|minutes|kb|mb|total_seconds)$", family.name)


def test_labels_and_help_are_escaped() -> None:
    name = 'a "b" \\ c\nd'
    assert values(text_of([Family("x", "gauge", "one\ntwo \\").add(float("inf"), name=name)])) == {
        ("x", frozenset({("name", name)})): float("inf")
    }
    assert text_of([Family("x", "gauge", "nothing")]) == ""


def test_everything_that_is_shown_and_alerted_exists() -> None:
    log = text(recorded("ps-killed"), HEARTBEATS)
    known = {name for name, _ in values(log)} | {"elasticdl_job_failed_tasks_total"}
    board = json.loads((MONITORING / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    asked += [rule["expr"] for rule in rules]
    named = {name for expr in asked for name in re.findall(r"elasticdl_[a-z_]+", expr)}
    assert named
    assert named <= known
    page = (MONITORING.parents[1] / "docs/monitoring.md").read_text()
    assert set(re.findall(r"`(elasticdl_[a-z_]+)`", page)) <= known
    commands = " ".join(rule["annotations"]["description"] for rule in rules)
    assert "elasticdl why" in commands
