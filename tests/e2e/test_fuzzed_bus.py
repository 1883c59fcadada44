"""Wrong messages on every subject while a job trains: it ends exact, or says what to do, which works."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.bus_fuzz import SUBJECTS, Wrong, attack
from tests.e2e.elastic import Elastic, Outcome, check_exact
from tests.e2e.models import SLOW, write_data, write_model

from elasticdl.shared.bus import subjects

RECORDS = 8_000
MEMORY_FACTOR = 2.0
SAMPLE = ("decision", "register")
"""The subjects of the usual run: the others are marked as thorough."""
REST = [name for name in SUBJECTS if name not in SAMPLE]
TABLE = {
    "edl.v1.<job>.task.<purpose>": "task",
    "edl.v1.<job>.task.<purpose>.again": "task again",
    "edl.v1.<job>.event.<service>.<name>": "event of a worker",
    "edl.v1.<job>.event.master": "decision",
    "edl.v1.<job>.model.<ps>": "register",
    "edl.v1.<job>.placement": "placement",
    "edl.v1.<job>.ring": "ring",
    "edl.v1.<job>.core.<service>": "core snapshot",
    "edl.v1.<job>.core.<service>-<stretch>": "core snapshot",
    "edl.v1.<job>.core.<service>.<write>-<part>": "part of a core snapshot",
    "edl.v1.<job>.payload.<digest>-<part>": "payload",
    "edl.v1.<job>.states.<group>": "states",
    "edl.v1.<job>.heartbeat.<service>.<name>": "heartbeat",
    "edl.v1.<job>.wake": "wake",
    "edl.v1.<job>.order.<pod>": "order",
}


def test_every_subject_is_attacked() -> None:
    assert set(TABLE) == {row.subject for row in subjects.TABLE}
    assert set(TABLE.values()) <= set(SUBJECTS)


def train(elastic: Elastic, name: str = "", kinds: tuple[Wrong, ...] = ()) -> Outcome:
    """Train a job of some seconds, and attack a subject once it trains."""
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=RECORDS)
    report = elastic.folder / "report.json"
    flags = ["--model_def=model.py", "--training_data=data", "--validation_data=data", "--minibatch_size=32"]
    steps = ["--num_epochs=3", "--checkpoint_steps=50", f"--report={report}"]
    with elastic.start("train", *flags, *steps) as running:
        running.wait_for_progress()
        if kinds:
            asyncio.run(attack(elastic.jobs / elastic.job, name, list(kinds), seed=name))
        elastic.remove_delay()
        exit_code = running.wait()
    return outcome_of(elastic, exit_code, running.output)


def outcome_of(elastic: Elastic, exit_code: int, output: str) -> Outcome:
    report = elastic.folder / "report.json"
    return Outcome(exit_code=exit_code, output=output, report=json.loads(report.read_text()) if report.exists() else {})


def follow_the_advice(elastic: Elastic, failed: Outcome) -> Outcome:
    """Run the last command that a failed job names."""
    commands = re.findall(r"elasticdl (resume [^\n]*)", failed.output)
    assert commands, failed.output
    return elastic.run(*commands[-1].rstrip(".").split())


def check_logs(run: Path) -> None:
    for log in run.glob("logs/*.log"):
        text = log.read_text(errors="replace")
        assert "Traceback" not in text, (log, text[-3000:])
        assert '"exception"' not in text, (log, text[-3000:])


def memory_of(outcome: Outcome) -> dict[str, int]:
    """Of each process but nats-server, which has to hold messages of 8 MiB."""
    return {name: each["rss_max_bytes"] for name, each in outcome.report["services"].items() if name != "nats-server"}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What the processes of such a job take that is left alone."""
    outcome = train(Elastic(folder=tmp_path_factory.mktemp("usual")))
    check_exact(outcome)
    return memory_of(outcome)


def check(elastic: Elastic, outcome: Outcome, usual: dict[str, int]) -> str:
    """The job has ended exact, at once or after its advice was followed; returns how, in words."""
    run = elastic.jobs / elastic.job
    assert "Traceback" not in outcome.output, outcome.output
    check_logs(run)
    how = "exact"
    if outcome.exit_code:
        how = f"exact after: {outcome.output.strip().splitlines()[-1]}"
        outcome = follow_the_advice(elastic, outcome)
        assert outcome.exit_code == 0, outcome.output
        check_logs(run)
    check_exact(outcome)
    for command in ("status", "events", "report"):
        assert elastic.run(command, elastic.job).exit_code == 0, command
    largest = memory_of(outcome)
    too_large = {name: size for name, size in largest.items() if size > MEMORY_FACTOR * usual.get(name, size)}
    assert not too_large, (too_large, usual)
    return f"{how}; {outcome.report['log']['unreadable']['count']} unreadable"


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.thorough) for name in REST)])
def test_a_job_survives_all_wrong_messages_of_a_subject(
    elastic: Elastic, usual: dict[str, int], name: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("outcome", check(elastic, train(elastic, name, tuple(Wrong)), usual))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", list(Wrong), ids=lambda kind: kind.value)
@pytest.mark.parametrize("name", list(SUBJECTS))
def test_a_job_survives_wrong_messages(
    elastic: Elastic, usual: dict[str, int], name: str, kind: Wrong, record_property: Callable[[str, object], None]
) -> None:
    record_property("outcome", check(elastic, train(elastic, name, (kind,)), usual))
