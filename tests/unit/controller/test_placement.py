"""Node selectors, node affinity, taints and tolerations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.clusters import after, job, nodes, orders, service

from elasticdl.controller.core import Cluster, Constraint, Job, Node, Pod, Requirement, Role, Taint, Toleration, decide

GPU = Constraint(selector=(("pool", "gpu"),), tolerations=(Toleration(key="gpu", operator="Exists"),))


def pools() -> tuple[Node, ...]:
    """Two plain nodes and a tainted one with another label."""
    plain, other, gpu = nodes(10, 10, 20)
    return plain, other, replace(gpu, labels={"pool": "gpu"}, taints=(Taint(key="gpu"),))


def on_gpu(name: str = "a", **fields: object) -> Job:
    found = job(name, **fields)  # type: ignore[arg-type]
    return replace(found, worker=replace(found.worker, constraint=GPU))


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (Requirement(key="zone", operator="In", values=("a", "b")), True),
        (Requirement(key="zone", operator="NotIn", values=("a",)), False),
        (Requirement(key="rack", operator="NotIn", values=("a",)), True),
        (Requirement(key="zone", operator="Exists"), True),
        (Requirement(key="zone", operator="DoesNotExist"), False),
        (Requirement(key="cores", operator="Gt", values=("31",)), True),
        (Requirement(key="cores", operator="Lt", values=("31",)), False),
        (Requirement(key="zone", operator="Gt", values=("1",)), False),
        (Requirement(key="metadata.name", operator="In", values=("n0",)), True),
        (Requirement(key="zone", operator="Like", values=("a",)), False),
    ],
)
def test_requirements(requirement: Requirement, holds: bool) -> None:
    constraint = Constraint(terms=((requirement,),))
    assert constraint.allows("n0", {"zone": "a", "cores": "32"}, ()) is holds


def test_one_term_is_enough_and_an_empty_one_matches_nothing() -> None:
    wrong = (Requirement(key="zone", operator="In", values=("b",)),)
    right = (Requirement(key="zone", operator="In", values=("a",)),)
    assert Constraint(terms=(wrong, right)).allows("n", {"zone": "a"}, ())
    assert not Constraint(terms=(wrong, ())).allows("n", {"zone": "a"}, ())


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", value="a100"), True),
        (Toleration(key="gpu", value="h100"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="spot", operator="Exists"), False),
    ],
)
def test_tolerations(toleration: Toleration, covers: bool) -> None:
    assert toleration.covers(Taint(key="gpu", value="a100")) is covers


def test_a_taint_that_only_prefers_keeps_no_pod_away() -> None:
    assert Constraint().allows("n", {}, (Taint(key="spot", effect="PreferNoSchedule"),))


def test_pods_stand_only_where_they_may() -> None:
    targets = decide(Cluster(nodes=pools()), [on_gpu(workers=(1, 99)), job("b", workers=(1, 99), created_s=1.0)], 0.0)
    placed = {(start.job, start.role, start.node) for target in targets.jobs for start in target.starts}
    assert {node for owner, role, node in placed if (owner, role) == ("a", Role.WORKER)} == {"n2"}
    assert "n2" not in {node for owner, role, node in placed if (owner, role) != ("a", Role.WORKER)}
    assert targets.of("a").workers == 10


def test_no_worker_leaves_a_node_for_one_that_may_not_stand_there() -> None:
    gpu, plain = on_gpu(workers=(1, 99)), job("b", workers=(1, 99), created_s=1.0)
    cluster = Cluster(nodes=pools())
    for _ in range(6):
        targets = decide(cluster, [gpu, plain], 0.0)
        cluster = after(cluster, [gpu, plain], targets)
    assert not orders(decide(cluster, [gpu, plain], 0.0))
    assert targets.of("a").workers == 10


def test_a_job_for_which_there_is_no_node_says_so_and_stops_no_other_one() -> None:
    targets = decide(Cluster(nodes=nodes(10)), [on_gpu(), job("b", created_s=1.0)], 0.0)
    assert targets.of("a").reason.startswith("no node has what the node selector, affinity and tolerations of a worker")
    assert targets.of("b").admitted


def test_a_job_that_waits_for_nodes_of_one_kind_lets_others_pass() -> None:
    held = Pod(name="train", request={"cpu": 20}, node="n2", priority=1000)
    cluster = Cluster(nodes=pools(), pods=(held,))
    targets = decide(cluster, [on_gpu(), job("b", created_s=1.0), on_gpu("c", created_s=2.0)], 0.0)
    assert targets.of("a").reason.startswith("waits for room")
    assert targets.of("b").admitted
    assert targets.of("c").reason == "waits behind a"


def test_workers_leave_for_a_pending_service_only_where_it_may_stand() -> None:
    gpu, plain = on_gpu(workers=(1, 99)), job("b", workers=(1, 99), created_s=1.0)
    cluster = Cluster(nodes=pools())
    for _ in range(6):
        cluster = after(cluster, [gpu, plain], decide(cluster, [gpu, plain], 0.0))
    web = replace(service("web", 4), constraint=GPU)
    targets = decide(replace(cluster, pods=(*cluster.pods, web)), [gpu, plain], 0.0)
    assert (len(targets.of("a").drains), targets.of("b").drains) == (2, ())


def test_a_ps_leaves_the_only_node_to_the_workers_that_need_it() -> None:
    plain, pool = nodes(18, 8)
    found = job(workers=(2, 4), ps=(1, 1), worker={"cpu": 3}, ps_request={"cpu": 4})
    wanted = replace(found, worker=replace(found.worker, constraint=Constraint(selector=(("pool", "gpu"),))))
    target = decide(Cluster(nodes=(plain, replace(pool, labels={"pool": "gpu"}))), [wanted], 0.0).of("a")
    assert {start.node for start in target.starts if start.role is Role.PS} == {"n0"}
    assert target.workers == 2
