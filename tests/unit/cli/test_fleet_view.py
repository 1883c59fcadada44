"""``elasticdl fleet show``."""

from __future__ import annotations

from typing import Any

from elasticdl.cli.commands.fleet.show import Use, view
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import labels
from elasticdl.shared.names import JobId, Service


def node(name: str, *, ready: str = "True", **amounts: str) -> Manifest:
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": amounts}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def pod(where: str, cpu: str, *, phase: str = "Running", **metadata: Any) -> Manifest:
    container = {"resources": {"requests": {"cpu": cpu}}}
    return {"metadata": metadata, "spec": {"nodeName": where, "containers": [container]}, "status": {"phase": phase}}


def training_job(name: str, created: str, **status: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"queue": "ads"}, "status": status}


def test_the_cluster_at_a_glance() -> None:
    job = labels(JobId("clicks-abc"), Service.MASTER)
    fleet = view(
        nodes=[node("a", cpu="4", memory="8Gi"), node("b", cpu="2"), node("lost", ready="Unknown", cpu="64")],
        pods=[
            pod("a", "1500m", labels=job),
            pod("b", "500m", labels={"app": "web"}),
            pod("b", "2", phase="Succeeded", labels=job),
            pod("lost", "8", labels=job),
            pod("", "3", labels=job),
        ],
        training_jobs=[
            training_job("late", "2026-01-02T03:04:06Z"),
            training_job("first", "2026-01-02T03:04:05Z", phase="Running", workersText="3 (1-6)", progress=40),
        ],
        events=[
            {
                "lastTimestamp": f"2026-01-02T03:05:0{9 - second}Z",
                "involvedObject": {"name": "first"},
                "message": str(second),
            }
            for second in range(10)
        ],
    )
    assert fleet.nodes == 2
    assert fleet.use[0] == Use(resource="cpu", allocatable=6.0, jobs=1.5, others=0.5)
    assert [(each.name, each.phase, each.workers) for each in fleet.jobs] == [
        ("team/first", "Running", "3 (1-6)"),
        ("team/late", "", ""),
    ]
    assert fleet.jobs[1].reason == "no controller has seen it"
    assert [text for _, _, text in fleet.decisions] == ["7", "6", "5", "4", "3", "2", "1", "0"]
