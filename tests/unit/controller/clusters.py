"""Small clusters for tests of the scheduling core, and what happens when its orders are done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticdl.controller.core import ANYWHERE, Cluster, Group, Job, Node, Phase, Pod, Role, Targets


def nodes(*cpu: int, **more: int) -> tuple[Node, ...]:
    """Nodes with these CPU."""
    return tuple(Node(name=f"n{number}", allocatable={"cpu": each, **more}) for number, each in enumerate(cpu))


def job(name: str = "a", *, workers: tuple[int, int] = (1, 10), ps: tuple[int, int] = (1, 1), **fields: Any) -> Job:
    """A job whose master and ps take 1 CPU each, and workers ``worker`` CPU (2)."""
    worker = fields.pop("worker", {"cpu": 2})
    constraint = fields.pop("constraint", ANYWHERE)
    return Job(
        name=name,
        master=Group(request={"cpu": 1}, constraint=constraint),
        ps=Group(request=fields.pop("ps_request", {"cpu": 1}), min=ps[0], max=ps[1], constraint=constraint),
        worker=Group(request=worker, min=workers[0], max=workers[1], constraint=constraint),
        **fields,
    )


def service(name: str, cpu: int, *, node: str = "", priority: int = 1000) -> Pod:
    """A pod of a service; without a node it is pending."""

    phase = Phase.RUNNING if node else Phase.PENDING
    return Pod(name=name, request={"cpu": cpu}, node=node, phase=phase, priority=priority)


def after(cluster: Cluster, jobs: list[Job], targets: Targets) -> Cluster:
    """The cluster once all orders are done: pods have started and left."""
    by_name = {each.name: each for each in jobs}
    gone = {pod for target in targets.jobs for pod in target.drains}
    started = [
        Pod(
            name=start.pod,
            job=start.job,
            role=start.role,
            node=start.node,
            request=by_name[start.job].group(start.role).request,
        )
        for target in targets.jobs
        for start in target.starts
    ]
    return replace(cluster, pods=(*(pod for pod in cluster.pods if pod.name not in gone), *started), ordered=())


def orders(targets: Targets) -> list[str]:
    """All orders in words."""
    return [
        *(f"start {start.pod}" for target in targets.jobs for start in target.starts),
        *(f"drain {pod}" for target in targets.jobs for pod in target.drains),
    ]


def number(cluster: Cluster, name: str, role: Role) -> int:
    """Pods of a job."""
    return sum(pod.job == name and pod.role is role for pod in cluster.pods)
