"""Scenarios: several jobs on one cluster, over minutes. ``make bench-cluster`` runs them, and notes what they took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import Deployment
from tests.cluster.scenarios.cluster_jobs import MODEL, ClusterJobs
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.timeline import Recorder
from tests.cluster.sites import REPOSITORY
from tests.e2e.models import slowly

from elasticdl.zoo import shipped_model_zoo

RESULTS = REPOSITORY / "build" / "cluster"
BATCH_S = 0.5
"""Seconds that a batch takes at least."""

Note = Callable[..., None]
"""Writes down figures by name."""


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Appends figures to ``build/cluster/results.jsonl``."""

    def write(**figures: Any) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        with (RESULTS / "results.jsonl").open("a") as file:
            file.write(json.dumps({"scenario": request.node.name, "time_s": round(time.time()), **figures}) + "\n")

    return write


@pytest.fixture
def jobs(
    cluster: Cluster, elasticdl_namespace: Deployment, click_data: str, recorder: Recorder, tmp_path: Path
) -> ClusterJobs:
    """Jobs of DeepFM, slowed down so that the workers of several jobs don't wait for the CPUs of this machine."""
    zoo = shipped_model_zoo()
    assert zoo is not None
    (tmp_path / f"{MODEL}.py").write_text(slowly((zoo / "deepfm.py").read_text(), BATCH_S))
    commands = CommandLine(
        kubeconfig=cluster.kubeconfig,
        namespace=elasticdl_namespace.namespace,
        folder=tmp_path,
        environment=elasticdl_namespace.environment,
    )
    return ClusterJobs(commands=commands, recorder=recorder, data=f"{click_data}/train")


@pytest.fixture
def recorder(request: pytest.FixtureRequest, cluster: Cluster, elasticdl_namespace: Deployment) -> Iterator[Recorder]:
    """Records the pods of the namespace; ``build/cluster/TEST.jsonl`` has their changes after the test."""
    recorder = Recorder(core=cluster.core, namespace=elasticdl_namespace.namespace).start()
    yield recorder
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(state)) for state in recorder.timeline().states)
    (RESULTS / f"{request.node.name}.jsonl").write_text("\n".join(lines))


@pytest.fixture
def free_milli_cpus(cluster: Cluster) -> int:
    """What pods of jobs can request, in thousandths of a CPU: what the node has, without what runs on it."""
    return cluster.free_milli_cpus()
