"""The simulator: small scenarios with results that can be checked by hand, and the scenarios of the package."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.controller.sim import POLICIES, Published, Scenario, load, read, shipped, simulate
from elasticdl.controller.sim.scenario import Times
from elasticdl.shared.errors import UserError

JOB = """
  - {name: JOB, submit: SUBMIT, master: {cpu: 1}, ps: {cpu: 1}, worker: {cpu: 1, max: MAX}, work: WORK}
"""


def write(folder: Path, *jobs: tuple[str, int, int, int], cpu: int = 12, more: str = "") -> str:
    """A scenario with one node; jobs are (name, second of submission, maximum of workers, work)."""
    lines = [
        JOB.replace("JOB", name).replace("SUBMIT", str(submit)).replace("MAX", str(most)).replace("WORK", str(work))
        for name, submit, most, work in jobs
    ]
    path = folder / "scenario.yaml"
    path.write_text(f"nodes: [{{cpu: {cpu}}}]\nseconds: null\njobs:{''.join(lines)}\n{more}")
    return str(path)


def test_a_job_alone(tmp_path: Path) -> None:
    result = simulate(load(write(tmp_path, ("a", 0, 7, 70))))
    assert result.pending_mean_s == 8.5  # 0.5 s for the decision, 4 s for the master, 4 s for ps and workers.
    assert result.end_s == pytest.approx(18.5)


@pytest.mark.parametrize(("policy", "waits", "ends"), [("ours", 13.5, 53.0), ("gang", 56.5, 81.0)])
def test_two_jobs(tmp_path: Path, policy: str, waits: float, ends: float) -> None:
    scenario = load(write(tmp_path, ("a", 0, 10, 300), ("b", 10, 10, 100)))
    second = simulate(scenario, policy).jobs[1]
    assert second.pending_s <= waits
    assert second.finished_s is not None
    assert second.finished_s <= ends


def test_a_service_is_whole_again(tmp_path: Path) -> None:
    service = "services: [{name: web, request: {cpu: 2}, replicas: [[0, 0], [30, 3]]}]"
    path = write(tmp_path, ("a", 0, 20, 1000), more=service)
    (step,) = simulate(load(path)).steps
    assert step.whole_s is not None
    assert step.whole_s <= 0.5 + 5 + 3


def test_the_same_seed_gives_the_same_result(tmp_path: Path) -> None:
    scenario = load(write(tmp_path, ("a", 0, 20, 400), ("b", 7, 20, 400)))
    results = [simulate(scenario, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0] != results[2]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ps", ["{cpu: 1, min: 0}", "{cpu: 1, min: 1, max: 4}"])
def test_every_policy_ends_every_job(tmp_path: Path, policy: str, ps: str) -> None:
    path = Path(write(tmp_path, ("a", 0, 5, 50), ("b", 3, 6, 90), ("c", 5, 3, 40)))
    path.write_text(path.read_text().replace("ps: {cpu: 1}", f"ps: {ps}"))
    result = simulate(load(str(path)), policy)
    assert all(job.finished_s for job in result.jobs)
    assert all(window.requested <= 1.0 for window in result.windows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: []", "the scenario has no nodes"),
        ("nodes: []\njobs: []\nspeed: 3", "the scenario has unknown fields: speed"),
        ("nodes: [{cpu: 1}]\njobs: [{name: a, worker: {min: 3, max: 1}}]", "job a has no master"),
        ("[", "is wrong"),
        ("3", "the scenario must be fields with names, not 3"),
        ("nodes: [{count: 2, cpu: 8}]\njobs: []", "jobs must be a list with at least one item"),
    ],
)
def test_a_wrong_scenario_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load(str(path))


_WRONG = [
    ("seconds", 0, "the scenario: seconds must be a number above 0"),
    ("nodes", [{"count": 0, "cpu": 8}], "nodes[0]: count must be a whole number from 1 to 100,000, not 0"),
    ("nodes", [{"count": 2.5, "cpu": 8}], "nodes[0]: count must be a whole number"),
    ("nodes", [{"count": 100_000_000, "cpu": 8}], "nodes[0]: count must be a whole number"),
    ("nodes", [{"cpu": 8}, {"cpu": -8}], "nodes[1]: cpu must be a number from 0"),
    ("nodes", [{"cpu": math.nan}], "nodes[0]: cpu must be a number from 0"),
    ("nodes", [{"cpu": math.inf}], "nodes[0]: cpu must be a number from 0"),
    ("nodes", [{"count": 3}], "nodes[0] has no resources"),
    ("system", {"cpu": 9}, "system takes more than a node has"),
    ("times", {"start": -4}, "the scenario, times: start must be a number from 0"),
    ("times", {"drain": [5, 1]}, "times: drain must not begin after its end"),
    ("times", {"stop": 1}, "times has unknown fields: stop"),
    ("windows", {"night": [50, 10]}, "the window night must not begin after its end"),
    ("services", [{"name": "web", "request": {"cpu": 1}, "replicas": [[0, -4]]}], "service web: replicas must be"),
    ("services", [{"name": "web", "request": {"cpu": 1}, "replicas": [[9, 4], [0, 1]]}], "web: replicas must be in"),
    ("services", [{"name": "web", "request": {"gpu": 1}, "replicas": [[0, 1]]}], "service web fits on no node"),
    ("jobs.name", ["x"], "a job: name must be a text"),
    ("jobs.count", 0, "job a: count must be"),
    ("jobs.submit", "soon", "job a: submit must be a number from 0 to 1e+15, not 'soon'"),
    ("jobs.submit", math.inf, "job a: submit must be"),
    ("jobs.every", -1, "job a: every must be"),
    ("jobs.work", math.nan, "job a: work must be a number above 0"),
    ("jobs.work", -50, "job a: work must be a number above 0"),
    ("jobs.workers_per_ps", 0, "job a: workers_per_ps must be a number above 0"),
    ("jobs.weight", -1, "job a: weight must be a number above 0"),
    ("jobs.curve", [], "job a: curve must be a list with at least one item"),
    ("jobs.curve", [[2, 1], [1, 1]], "job a: curve: The points of a curve are sorted"),
    ("jobs.curve", [[2, -1]], "job a: curve must be a number above 0"),
    ("jobs.priority", "high", "job a: priority must be a whole number"),
    ("jobs.master", {"cpu": 1, "min": 2}, "job a: a job has one master"),
    ("jobs.worker", {"cpu": 1, "min": 6, "max": 5}, "job a, worker: min is 6 and max is 5"),
    ("jobs.worker", {"cpu": 1, "min": 0, "max": 0}, "job a, worker: max must be 1 or more"),
    ("jobs.worker", {"cpu": 100}, "the worker of job a fits on no node: it asks for cpu 100"),
]


@pytest.mark.parametrize(("field", "value", "message"), _WRONG)
def test_a_wrong_value_names_its_field(tmp_path: Path, field: str, value: Any, message: str) -> None:
    pods = {"master": {"cpu": 1}, "ps": {"cpu": 1, "max": 2}, "worker": {"cpu": 1, "max": 5}}
    scenario: dict[str, Any] = {"seconds": 60, "nodes": [{"count": 2, "cpu": 8}]}
    scenario["jobs"] = [{"name": "a", "work": 50, **pods}]
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario))
    assert simulate(load(str(path)))
    owner = scenario["jobs"][0] if field.startswith("jobs.") else scenario
    owner[field.removeprefix("jobs.")] = value
    path.write_text(yaml.safe_dump(scenario))
    with pytest.raises(UserError, match=re.escape(message)):
        load(str(path))


def endless(tmp_path: Path, *jobs: dict[str, Any]) -> str:
    """A scenario without a length."""
    pods = {"master": {"cpu": 1}, "ps": {"cpu": 1}, "worker": {"cpu": 1}}
    path = tmp_path / "endless.yaml"
    path.write_text(yaml.safe_dump({"nodes": [{"count": 2, "cpu": 8}], "jobs": [{**pods, **job} for job in jobs]}))
    return str(path)


def test_jobs_that_can_not_finish_need_a_scenario_with_an_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="job a never finishes: give it work, or give the scenario seconds"):
        load(endless(tmp_path, {"name": "a"}))
    with pytest.raises(UserError, match="job a never finishes: all nodes together have no room"):
        load(endless(tmp_path, {"name": "a", "work": 5, "worker": {"cpu": 1, "min": 15}}))
    with pytest.raises(UserError, match="two jobs have the name a"):
        load(endless(tmp_path, {"name": "a", "work": 5}, {"name": "a", "work": 5}))
    fragmented = load(endless(tmp_path, {"name": "a", "work": 5, "worker": {"cpu": 5, "min": 2}, "ps": {"cpu": 4}}))
    with pytest.raises(UserError, match="does not end under the policy gang: a never finished"):
        simulate(fragmented, "gang")


def test_an_unknown_scenario_names_those_that_exist() -> None:
    with pytest.raises(UserError, match=r"edl-case-1, edl-case-1-scaled-ps, edl-case-2, pollux-0.5, .*, two-jobs"):
        load("nothing")


def test_an_unknown_scenario_with_a_similar_name_is_corrected() -> None:
    with pytest.raises(UserError, match=r"no scenario polux-1.0.\n.*Did you mean 'pollux-1.0'\?"):
        load("polux-1.0")


def test_the_shipped_scenarios_are_those_of_the_reports() -> None:
    for name in shipped():
        scenario = read(name)
        if isinstance(scenario, Scenario) and name.startswith("edl"):
            assert len(scenario.nodes) == 133
            assert sum(amounts["cpu"] for amounts in scenario.nodes) == 2_348_000


def test_edl_case_2() -> None:
    result = simulate(load("edl-case-2"))
    windows = {window.name: window for window in result.windows}
    assert result.pending_worst_s <= 10
    assert windows["whole run"].requested >= 0.86
    for name in ("after the ramp", "off-peak"):
        assert windows[name].bound - windows[name].requested <= 0.03
        assert windows[name].below_min == 0
    assert all(step.whole_s is not None and step.whole_s <= 15 for step in result.steps)


@pytest.mark.parametrize(("name", "training"), [("edl-case-1", 0.55), ("edl-case-1-scaled-ps", 0.74)])
def test_edl_case_1(name: str, training: float) -> None:
    result = simulate(load(name))
    window = next(each for each in result.windows if each.name == "plateau")
    assert result.pending_mean_s <= 10
    assert result.pending_worst_s <= 15
    assert window.jain >= 0.98
    assert window.below_min == 0
    assert window.training >= training
    assert window.bound - window.requested <= 0.015


def test_the_table_and_its_json() -> None:
    outcome = CliRunner().invoke(app, ["fleet", "simulate", "two-jobs", "--policy=ours", "--policy=gang"])
    assert outcome.exit_code == 0
    assert "\tours\tgang\n" in outcome.output
    assert "whole run: packing bound\t" in outcome.output
    outcome = CliRunner().invoke(app, ["fleet", "simulate", "two-jobs", "--json"])
    assert [result["policy"] for result in json.loads(outcome.output)["results"]] == ["ours", "gang", "edl"]


def test_the_documented_scenario(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    path = tmp_path / "documented.yaml"
    published, own = (each.partition("```")[0] for each in text.split("```yaml\n")[1:])
    path.write_text(published)
    assert read(str(path)) == Published(
        name="documented", about="Four workloads with a shorter pause.", load=1.0, workloads=(1, 2, 3, 4), pause_s=4
    )
    path.write_text(own)
    scenario = load(str(path))
    assert (len(scenario.nodes), len(scenario.jobs), scenario.times) == (14, 3, Times())
    result = simulate(scenario)
    assert all(job.started for job in result.jobs)


def test_an_unknown_policy_is_explained() -> None:
    outcome = CliRunner().invoke(app, ["fleet", "simulate", "two-jobs", "--policy=theirs"])
    assert "There is no policy theirs. Policies are ours, gang, edl." in str(outcome.exception)
