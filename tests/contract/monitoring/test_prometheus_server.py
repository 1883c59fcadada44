"""A real Prometheus scrapes ``elasticdl metrics``, and evaluates the alert rules and the queries of the dashboard."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.contract.servers import prometheus
from tests.contract.servers.prometheus import ask, evaluated_rules, wait_for
from tests.contract.servers.s3 import free_port
from tests.unit.views.recorded import LOGS, Recorded, header_of, recorded
from tests.unit.views.test_prometheus import HEARTBEATS, text

from elasticdl.views.files.exported_log import export

MONITORING = Path(__file__).parents[3] / "deploy/monitoring"
LATER = ("elasticdl_process_", "elasticdl_job_staleness_updates", "elasticdl_job_metric")
"""Series that an ended job without metrics, and with synchronous or few updates, has not."""


@pytest.fixture(scope="module")
def programs() -> Path:
    found = prometheus.binaries()
    if found is None:
        pytest.skip("no Prometheus on this machine: make prometheus-server")
    return found


def promtool(programs: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run([programs / "promtool", *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_names_and_units_follow_the_conventions(programs: Path, path: Path) -> None:
    assert promtool(programs, "check", "metrics", given=text(recorded(path.stem), HEARTBEATS)) == ""


def test_the_alert_rules_and_the_configuration_are_accepted(programs: Path, tmp_path: Path) -> None:
    assert "6 rules found" in promtool(programs, "check", "rules", str(MONITORING / "alerts.yaml"))
    assert "SUCCESS" in promtool(programs, "check", "config", str(configured(tmp_path, 1)))


def test_a_job_is_scraped_and_every_query_has_a_result(programs: Path, tmp_path: Path) -> None:
    with exporting(exported("worker-killed", tmp_path)) as port:
        configuration = configured(tmp_path, port)
        with prometheus.prometheus_server(programs, configuration, tmp_path) as address:
            wait_for(address, "count_over_time(elasticdl_job_records[1m]) > 3")
            for query in dashboard_queries():
                found = ask(address, query)
                assert found or any(name in query for name in LATER), query
            (state,) = ask(address, 'elasticdl_job_state{state="succeeded"}')
            assert state["value"][1] == "1"
            assert state["metric"]["job"] == "elasticdl"
            rules = evaluated_rules(address)
            assert len(rules) == 6
            assert {rule["health"] for rule in rules} == {"ok"}


def exported(name: str, folder: Path) -> Path:
    """The log of a real job, as a file."""
    records, path = recorded(name), folder / "job.edl"
    asyncio.run(export(Recorded(records), path, header_of(records), lambda envelope: envelope))
    return path


def configured(folder: Path, port: int) -> Path:
    """Our configuration without the part for Kubernetes, which Debian's Prometheus is built without."""
    values = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    values["scrape_configs"] = [each for each in values["scrape_configs"] if "static_configs" in each]
    values["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    values["rule_files"] = [str(MONITORING / name) for name in values["rule_files"]]
    values["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@contextmanager
def exporting(log: Path) -> Iterator[int]:
    """``elasticdl metrics`` of a file, as a process; its port."""
    command = [sys.executable, "-m", "elasticdl.cli", "metrics", str(log), f"--port={free_port()}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2].partition("/")[0])
        finally:
            process.terminate()


def dashboard_queries() -> list[str]:
    """All queries of the dashboard, for all jobs."""
    values = json.loads((MONITORING / "grafana.json").read_text())
    queries = [target["expr"] for panel in values["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 10
    return [query.replace("$training_job", ".*") for query in queries]
