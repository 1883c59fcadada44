"""The tutorial about a failure: its commands find the three problems, and so do the panels of the dashboard."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.dashboard import panels
from elasticdl.views.files.exported_log import ExportedLog
from elasticdl.views.replaying import Replay
from elasticdl.views.tasks import TaskFilter, TaskQuery

TUTORIALS = Path(__file__).parents[3] / "docs/tutorials"
PAGE = (TUTORIALS / "last_nights_failure.md").read_text()
LOG = TUTORIALS / "last-night.edl"
COMMANDS = re.findall(r"^    elasticdl (.*)$", PAGE, re.MULTILINE)


def test_the_commands_find_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / LOG.name).write_bytes(LOG.read_bytes())
    told = {}
    for command in COMMANDS:
        name, *arguments = shlex.split(command)
        if name == "dashboard":
            continue
        result = CliRunner().invoke(app, [name, *arguments])
        assert result.exit_code == (1 if name == "doctor" else 0), (command, result.output)
        told[command.replace(f" {LOG.name}", "")] = result.output
    assert "record 60321 (from 0) of /job/data/fares.csv" in told["doctor --output=last-night.zip"]
    assert "column c holds 'unknown'" in told["doctor --output=last-night.zip"]
    assert f"elasticdl task {LOG.name} 117" in told["doctor --output=last-night.zip"]
    assert "ps-0 ended: preempted (2 times: #95, #184)" in told["doctor --output=last-night.zip"]
    assert "\n117\t1\tfares.csv\t59904-60415\t8\t" in told["tasks --state=failed"]
    assert told["tasks --state=failed"].count("task 117, batch 6 (user_code): record 60321 (from 0)") == 3
    failed = re.findall(r"(worker-\d): failed at batch 6", told["task 117"])
    assert sorted(failed) == ["worker-0", "worker-1", "worker-2"]
    assert [line.split()[0] for line in told["events --type=PsLost"].splitlines()] == ["#95", "#184"]
    assert "pods.ps-0.incarnation" in told["replay --diff=94 --until=120"]
    rows = dict(
        line.split("\t", 1) for line in told["replay --until=94 --simulate --no-failures"].splitlines() if "\t" in line
    )
    without, really = (float(rows[name].split("\t")[1].split()[0]) for name in ("no failures", "what happened"))
    assert without < really
    (slow,) = [line for line in told["why"].splitlines() if line.startswith("a worker that is slower")][:1]
    assert slow.split("\t")[1:] == ["7.797", "12.5", "#111"]
    assert " worker-1 TaskFinished" in told["events --since=#111 --until=#111"]
    assert "\tworker-1\t" in told["tasks --slowest=10"].splitlines()[2]
    assert {"last-night.zip", "last-night.html", "last-night-trace.json.gz"} <= {
        each.name for each in tmp_path.iterdir()
    }


def test_a_decision_is_one_line_also_if_its_reason_has_several() -> None:
    lines = CliRunner().invoke(app, ["replay", str(LOG), "--step"]).output.splitlines()
    assert all(line.startswith("#") for line in lines), lines


def test_the_panels_find_all_three() -> None:
    replay = Replay()
    replay.extend(list(ExportedLog(LOG).records()))
    last = len(replay.records)
    parts = {part["cause"]: part["evidence"] for part in panels.why(replay, last)["parts"]}
    assert parts["slow_worker"][0]["seq"] == 111
    assert replay.records[110].envelope.name == "worker-1"
    lost = panels.events(replay, last, ["PsLost"], [], "")["events"]
    assert [row["seq"] for row in lost] == [184, 95]
    failed = panels.tasks(replay, last, TaskQuery(state=TaskFilter.FAILED))["rows"]
    assert [row[0] for row in failed] == ["117"]
    history = panels.story(replay, last, 117)["history"]
    assert sum("column c holds" in each["text"] for each in history) == 3
