"""Whatever the cluster looks like: targets fit, gangs are whole, and decisions come to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.controller.clusters import after, job, orders, service

from elasticdl.controller.core import (
    ANYWHERE,
    Cluster,
    Constraint,
    Curve,
    Job,
    Node,
    Planner,
    Queue,
    Role,
    Taint,
    Targets,
    Toleration,
    decide,
)

ROUNDS = 30
POOL = Constraint(selector=(("pool", "p"),), tolerations=(Toleration(key="p", operator="Exists"),))


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    return [
        job(
            f"job-{number}",
            workers=tuple(sorted((draw(st.integers(1, 3)), draw(st.integers(1, 12))))),  # type: ignore[arg-type]
            ps=tuple(sorted((draw(st.integers(0, 2)), draw(st.integers(0, 4))))),  # type: ignore[arg-type]
            worker={"cpu": draw(st.integers(1, 6)), "gpu": draw(st.integers(0, 1))},
            ps_request={"cpu": draw(st.integers(1, 5))},
            created_s=draw(st.floats(0, 10)),
            priority=draw(st.integers(0, 2)),
            weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
            queue=draw(st.sampled_from(["", "", "x", "y"])),
            constraint=draw(st.sampled_from([ANYWHERE, ANYWHERE, POOL])),
            curve=draw(st.sampled_from([Curve(), Curve(((1, 10.0), (4, 30.0), (6, 31.0)))])),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    sizes = draw(st.lists(st.tuples(st.integers(1, 18), st.integers(0, 2)), min_size=1, max_size=6))
    pooled = [number > 0 and draw(st.booleans()) for number in range(len(sizes))]
    nodes = tuple(
        Node(
            name=f"n{number}",
            allocatable={"cpu": cpu, "gpu": gpu},
            labels={"pool": "p"} if pooled[number] else {},
            taints=(Taint(key="p"),) if pooled[number] else (),
        )
        for number, (cpu, gpu) in enumerate(sizes)
    )
    placed = [
        service(f"s{number}", draw(st.integers(1, node.allocatable["cpu"])), node=node.name)
        for number, node in enumerate(nodes)
        if draw(st.booleans())
    ]
    limit = draw(st.none() | st.integers(0, 40))
    queues = (
        Queue(name="x", quota={"cpu": draw(st.integers(0, 30))}, limit=None if limit is None else {"cpu": limit}),
        Queue(name="y", quota={"cpu": draw(st.integers(0, 30))}),
    )
    return Cluster(nodes=nodes, pods=tuple(placed), queues=queues)


def check(cluster: Cluster, wanted: list[Job], targets: Targets) -> Cluster:
    """The rules of one decision; returns the cluster once its orders are done."""
    done = after(cluster, wanted, targets)
    used: Counter[tuple[str, str]] = Counter()
    for pod in done.pods:
        for name, amount in pod.request.items():
            used[pod.node, name] += amount
    for node in done.nodes:
        for name, amount in node.allocatable.items():
            assert used[node.name, name] <= amount
    for each in wanted:
        target = targets.of(each.name)
        pods = Counter(pod.role for pod in done.pods if pod.job == each.name)
        assert (pods[Role.WORKER], pods[Role.PS]) == (target.workers, target.ps)
        assert target.reason
        if target.admitted:
            assert pods[Role.MASTER] == 1
            assert each.workers_min <= target.workers <= each.worker.max
            assert each.ps.min <= target.ps <= each.ps.max
        else:
            assert not pods
    assert len({pod.name for pod in done.pods}) == len(done.pods)
    owners, where = {each.name: each for each in wanted}, {node.name: node for node in done.nodes}
    for pod in done.pods:
        if pod.job and pod.role:
            node = where[pod.node]
            assert owners[pod.job].group(pod.role).constraint.allows(node.name, node.labels, node.taints)
    by_queue = {
        queue.name: sum(pod.request["cpu"] for pod in done.pods if pod.job and owners[pod.job].queue == queue.name)
        for queue in done.queues
    }
    assert sum(by_queue.values()) <= sum(queue.quota["cpu"] for queue in done.queues)
    for queue in done.queues:
        if queue.limit is not None:
            assert by_queue[queue.name] <= max(queue.limit["cpu"], queue.quota["cpu"])
    return done


# Without shrinking: that takes minutes here.
@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(clusters(), jobs(), st.lists(st.integers(1, 6), max_size=3), st.randoms(use_true_random=False))
def test_decisions_fit_repeat_and_come_to_rest(cluster, wanted, demands, random) -> None:  # type: ignore[no-untyped-def]
    planner = Planner()
    for _ in range(ROUNDS):
        targets = decide(cluster, wanted, 0.0)
        assert planner.decide(planner.view.changes_to(cluster, wanted), 0.0) == targets
        plan = planner._plan
        assert plan is not None
        assert plan.with_surplus == {name for name in plan.jobs if plan.surplus(name)}
        shuffled = random.sample(wanted, len(wanted))
        assert decide(cluster, shuffled, 0.0) == targets
        cluster = check(cluster, wanted, targets)
        if not orders(targets):
            break
    else:
        raise AssertionError(f"orders without end: {orders(targets)}")
    pending = tuple(service(f"web-{number}", cpu) for number, cpu in enumerate(demands))
    full = replace(cluster, pods=(*cluster.pods, *pending))
    squeezed = decide(full, wanted, 0.0)
    check(cluster, wanted, squeezed)
    # Some jobs end, others want something else, a node vanishes, and no order was carried out.
    for others in (wanted, random.sample(wanted, len(wanted) - 1)):
        edited = [_edited(each, random) for each in others]
        smaller = replace(full, nodes=random.sample(full.nodes, max(1, len(full.nodes) - random.randint(0, 1))))
        for found in (full, smaller):
            assert planner.decide(planner.view.changes_to(found, edited), 0.0) == decide(found, edited, 0.0)


def _edited(job: Job, random: Random) -> Job:
    worker = job.worker
    change = random.choice(["", "", "max", "request", "suspend", "priority", "constraint"])
    if change == "max":
        return replace(job, worker=replace(worker, max=max(1, worker.min, random.randint(1, 12))))
    if change == "request":
        return replace(job, worker=replace(worker, request={"cpu": random.randint(1, 6), "gpu": 0}))
    if change == "constraint":
        return replace(job, ps=replace(job.ps, constraint=POOL))
    return replace(job, suspended=change == "suspend", priority=job.priority + (change == "priority"))
