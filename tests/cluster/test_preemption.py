"""Pods of higher priority take the place of pods of lower priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from tests.cluster.conftest import Cluster
from tests.cluster.sites import POD_IMAGE

PRIORITIES = {"test-low": 100, "test-high": 1000}
LOW = {f"low-{i}" for i in range(4)}


@pytest.fixture
def priority_classes(cluster: Cluster) -> Iterator[None]:
    cluster.node_site()  # it preempts pods, so it must not run on a cluster that others use
    scheduling: Any = client.SchedulingV1Api(cluster.core.api_client)
    for name, value in PRIORITIES.items():
        scheduling.create_priority_class({"metadata": {"name": name}, "value": value})
    yield
    for name in PRIORITIES:
        scheduling.delete_priority_class(name)


@pytest.mark.usefixtures("priority_classes")
def test_a_pod_of_high_priority_preempts_as_many_pods_as_it_needs(cluster: Cluster, namespace: str) -> None:
    (node,) = cluster.core.list_node().items
    quarter = {"requests": {"cpu": f"{int(node.status.allocatable['cpu']) * 250}m"}}
    half = {"requests": {"cpu": f"{int(node.status.allocatable['cpu']) * 500}m"}}
    for name in sorted(LOW):
        cluster.create_pod(namespace, name, POD_IMAGE, resources=quarter, priorityClassName="test-low")
    before = wait_until_running(cluster, namespace, LOW)

    cluster.create_pod(namespace, "high", POD_IMAGE, resources=half, priorityClassName="test-high")
    steps = steps_until_high_runs(cluster, namespace)

    victims = {name for step, name in steps if step == "preempted"}
    assert len(victims) == 2
    assert victims < LOW
    preempted = max(position for position, (step, _) in enumerate(steps) if step == "preempted")
    assert preempted < steps.index(("scheduled", "high")) < steps.index(("running", "high"))

    after = {pod.metadata.name: pod for pod in cluster.core.list_namespaced_pod(namespace).items}
    for name in LOW - victims:
        assert after[name].metadata.uid == before[name].metadata.uid
        assert after[name].status.phase == "Running"
        assert after[name].status.container_statuses[0].restart_count == 0


def wait_until_running(cluster: Cluster, namespace: str, names: set[str]) -> dict[str, Any]:
    """The pods, once all of them run."""
    running: dict[str, Any] = {}
    for _, pod in cluster.pod_events(namespace):
        if pod.status.phase == "Running":
            running[pod.metadata.name] = pod
        if running.keys() >= names:
            break
    return running


def steps_until_high_runs(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    """What happened to which pod, in order and each once, until the pod ``high`` runs."""
    steps: list[tuple[str, str]] = []
    for _, pod in cluster.pod_events(namespace):
        name = pod.metadata.name
        conditions = {condition.type: condition for condition in pod.status.conditions or ()}
        target = conditions.get("DisruptionTarget")
        happened = {
            "preempted": target is not None and target.reason == "PreemptionByScheduler",
            "scheduled": bool(pod.spec.node_name),
            "running": pod.status.phase == "Running",
        }
        steps += [(step, name) for step, has in happened.items() if has and (step, name) not in steps]
        if ("running", "high") in steps:
            return steps
    return steps
