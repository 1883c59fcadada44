"""Nodes come, go and change: the plan is kept, and decides as a new one would."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.unit.controller.clusters import after, job, service

from elasticdl.controller.core import Cluster, Constraint, Curve, Node, Phase, Planner, Taint, Toleration, decide

POOL = Constraint(selector=(("pool", "p"),), tolerations=(Toleration(key="p", operator="Exists"),))


def node(name: str, random: Random) -> Node:
    """A node of one of several kinds."""
    pooled = random.random() < 0.3
    return Node(
        name=name,
        allocatable={"cpu": random.choice([6, 9, 14]), "gpu": random.choice([0, 0, 2])},
        labels={"pool": "p"} if pooled else {},
        taints=(Taint(key="p"),) if pooled else (),
    )


def test_a_plan_is_kept_when_nodes_come_go_and_change() -> None:
    for seed in range(6):
        random = Random(seed)
        jobs = [
            job(
                f"job-{number}",
                workers=(1, random.randint(1, 9)),
                ps=(1, random.randint(1, 3)),
                worker={"cpu": random.randint(1, 4), "gpu": random.randint(0, 1)},
                constraint=random.choice([Constraint(), Constraint(), POOL]),
                curve=random.choice([Curve(), Curve(((1, 10.0), (3, 24.0)))]),
                weight=random.choice([0.5, 1.0]),
            )
            for number in range(7)
        ]
        cluster, planner = Cluster(nodes=tuple(node(f"n{number}", random) for number in range(9))), Planner()
        for turn in range(16):
            changes = planner.view.changes_to(cluster, jobs)
            targets = planner.decide(changes, 0.0)
            assert targets == decide(cluster, jobs, 0.0), f"seed {seed}, turn {turn}"
            if random.random() < 0.8:  # Otherwise the orders are lost.
                cluster = after(cluster, jobs, targets)
            nodes = {each.name: each for each in cluster.nodes}
            changed = random.choice(sorted(nodes))
            match random.choice(["gone", "new", "changed", "same", "gone with its pods"]):
                case "gone":
                    del nodes[changed]
                case "gone with its pods":
                    del nodes[changed]
                    cluster = replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.node != changed))
                case "new":
                    name = f"n{turn // 2}-{turn}"  # Between the others.
                    nodes[name] = node(name, random)
                    pods = (*cluster.pods, service(f"s{turn}", 3, node=name))
                    cluster = replace(cluster, pods=pods)
                case "changed":
                    nodes[changed] = node(changed, random)
            cluster = replace(cluster, nodes=tuple(nodes.values()) or (node("last", random),))
            if random.random() < 0.3 and cluster.pods:
                pod = random.choice(cluster.pods)
                phase = random.choice([Phase.STUCK, Phase.LEAVING, Phase.PENDING])
                cluster = replace(
                    cluster, pods=(*(each for each in cluster.pods if each != pod), replace(pod, phase=phase))
                )


def test_a_large_cluster_keeps_its_plan_as_well() -> None:
    nodes = [
        Node(name=f"n{number:04}", allocatable={"cpu": 3 + number % 4, "gpu": number % 2}) for number in range(1003)
    ]
    jobs = [job(f"job-{number}", workers=(1, 12), worker={"cpu": 1 + number % 3}) for number in range(40)]
    cluster, planner = Cluster(nodes=tuple(nodes)), Planner()
    for gone in (0, 2, 500):
        cluster = replace(cluster, nodes=cluster.nodes[gone:] if gone < 500 else tuple(nodes[::2]))
        targets = planner.decide(planner.view.changes_to(cluster, jobs), 0.0)
        assert targets == decide(cluster, jobs, 0.0)
        cluster = after(cluster, jobs, targets)
