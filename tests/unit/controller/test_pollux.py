"""Pollux' simulated cluster: published results come out again, and what our core makes of the same jobs."""

from __future__ import annotations

import json
import tarfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.controller.sim import load
from elasticdl.controller.sim.pollux import LOADS, Cluster, Data
from elasticdl.controller.sim.pollux.model import StepTime
from elasticdl.shared.errors import UserError


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """One for all tests: it keeps what it has read of the traces."""
    pytest.importorskip("scipy", reason="traces are interpolated with SciPy: pip install 'elasticdl[simulation]'")
    return Cluster(Data())


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_published_results_come_out_again(cluster: Cluster, policy: str) -> None:
    outcome = cluster.simulate(policy, 0.5, 3, 30)
    assert outcome.mean_jct_s == pytest.approx(cluster.data.published()[policy, 0.5, 3], rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_all_published_results_come_out_again(cluster: Cluster, policy: str, load: float) -> None:
    for workload in range(1, 9):
        outcome = cluster.simulate(policy, load, workload, 30)
        assert outcome.mean_jct_s == pytest.approx(cluster.data.published()[policy, load, workload], rel=1e-6)


def test_jobs_end_sooner_than_with_pollux(cluster: Cluster) -> None:
    outcome = cluster.simulate("ours", 0.5, 5, 30)
    assert len(outcome.jct_s) == 80
    assert outcome.mean_jct_s < cluster.data.published()["pollux", 0.5, 5]


def test_the_same_workload_gives_the_same_result(cluster: Cluster) -> None:
    assert cluster.simulate("ours", 0.5, 5, 30) == cluster.simulate("ours", 0.5, 5, 30)


def test_the_time_of_a_step_is_learned() -> None:
    def step(nodes: int, gpus: int, local: int) -> tuple[int, int, int, float, float]:
        compute = 0.05 + 0.002 * local
        network = 0.0 if gpus == 1 else 0.08 + 0.003 * (gpus - 2) if nodes > 1 else 0.02 + 0.001 * (gpus - 2)
        seconds = (compute**1.5 + network**1.5) ** (1 / 1.5)
        return nodes, gpus, local, seconds, seconds - compute

    seen = [step(1, 1, 64), step(1, 4, 32), step(1, 4, 64), step(2, 8, 64), step(4, 16, 32), step(4, 16, 128)]
    fitted = StepTime(seen)
    assert fitted.error(seen) < 0.05  # What is assumed without measurements still counts a little.
    assert fitted.error([step(1, 2, 128), step(3, 12, 100)]) < 0.1
    extra = fitted.seconds(np.array([4.0]), np.array([16.0]), np.array([32.0]), np.array([2.0]))
    assert extra[0] == pytest.approx(seen[4][3] + 2 * (0.05 + 0.002 * 32), rel=0.05)


def run(*arguments: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, ["fleet", "simulate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_command(cluster: Cluster, tmp_path: Path) -> None:
    checkout = tmp_path / "simulator"
    archive = resources.files("elasticdl.controller.sim.pollux") / "published.tar.xz"
    with archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:xz") as files:
        files.extractall(checkout, filter="data")
    scenario = tmp_path / "short.yaml"
    scenario.write_text("about: One workload.\npublished: {load: 0.5, workloads: [3]}\n")
    told = run(str(scenario), "--policy=tiresias", f"--data={checkout}")
    assert "workload 3\t1869.9 s\t1310.5 s\t1869.9 s\t1986.8 s" in told
    assert "beside Pollux, published\t+42.7 %" in told
    found = json.loads(run(str(scenario), "--policy=tiresias", "--json"))
    assert found["results"][0]["outcome"]["jct_s"]["ncf-2"] > 0
    assert {each["policy"] for each in found["published"]} == {"pollux", "tiresias", "optimus"}


def test_what_users_may_get_wrong(tmp_path: Path) -> None:
    scenario = tmp_path / "wrong.yaml"
    scenario.write_text("published: {load: 0.7, workloads: [3]}\n")
    for arguments, told in (
        ([str(scenario), "--policy=tiresias"], "There is no load 0.7. Loads are 0.5, 1.0, 1.5, 2.0."),
        (["pollux-1.0", "--policy=gang"], "There is no policy gang. Policies are ours, tiresias, optimus."),
        (["pollux-1.0", f"--data={tmp_path}"], "has no folder traces"),
        (["pollux-1.0", "--record=x"], "--seed and --record are for scenarios that have their jobs in their file"),
        (["two-jobs", f"--data={tmp_path}"], "--data is for scenarios of published workloads"),
    ):
        result = CliRunner().invoke(app, ["fleet", "simulate", *arguments])
        assert result.exit_code != 0
        assert told in str(result.exception) or told in " ".join(result.output.split())
    scenario.write_text("published: {load: 1, workloads: [9]}\n")
    with pytest.raises(UserError, match="a workload must be a whole number from 1 to 8, not 9"):
        load(str(scenario))
    with pytest.raises(UserError, match="its file"):
        load("pollux-1.0")
