"""The text that Prometheus reads."""

from __future__ import annotations

from tests.unit.controller.clusters import nodes, service

from elasticdl.controller.core import Cluster, Pod, Role
from elasticdl.controller.service.metrics import Metrics


def test_the_text_of_the_metrics() -> None:
    metrics = Metrics()
    metrics.decided(0.25)
    metrics.steps["create"] += 2
    worker = Pod(name="w", request={"cpu": 500, "memory": 2}, node="n0", job="a", role=Role.WORKER)
    pods = (service("web", 1500, node="n0"), service("waits", 1000), worker)
    metrics.saw(Cluster(nodes=nodes(2000, 1000), pods=pods), ["Running", "Waiting", "Running"])
    lines = metrics.text().splitlines()
    assert "elasticdl_controller_decisions_total 1" in lines
    assert "elasticdl_controller_last_decision_seconds 0.25" in lines
    assert 'elasticdl_controller_steps_total{step="create"} 2' in lines
    assert 'elasticdl_controller_training_jobs{phase="Running"} 2' in lines
    assert 'elasticdl_controller_allocatable{resource="cpu"} 3' in lines
    assert 'elasticdl_controller_requested{owner="jobs",resource="memory"} 2097152' in lines
    assert 'elasticdl_controller_requested{owner="others",resource="cpu"} 1.5' in lines
