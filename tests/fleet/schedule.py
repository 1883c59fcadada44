"""Random fleets and their faults, by seed."""

from __future__ import annotations

from random import Random

from tests.fleet.world import Fault

from elasticdl.controller.core import ANYWHERE, Constraint, Curve, Group, Queue
from elasticdl.controller.sim.scenario import JobSpec, Scenario, Service, Times

FAULTS_S = 300.0
"""Faults happen until then."""
END_S = 800.0
ACTIONS = (
    *("crash",) * 6,
    *("lose_node", "return_node") * 2,
    *("refuse", "kill_controller", "stale_view") * 2,
    "clock",
    "suspend",
    "edit",
    "break_image",
    *("quota",) * 3,
)
POOL = Constraint(selector=(("pool", "fast"),))


def random_fleet(seed: int) -> tuple[Scenario, tuple[Fault, ...]]:
    """A fleet that is small enough for many of them, and its faults."""
    random = Random(seed)
    nodes = [
        {"cpu": random.choice([8, 12, 17, 18]), "gpu": random.choice([0, 0, 2])} for _ in range(random.randint(2, 6))
    ]
    labels = [{"pool": "fast"} if random.random() < 0.4 else {} for _ in nodes]
    has_queues = random.random() < 0.5
    queues = tuple(Queue(name=name, quota={"cpu": random.randint(8, 40)}) for name in "xy") if has_queues else ()
    services: tuple[Service, ...] = ()
    if random.random() < 0.6:
        steps = sorted({0.0, *(float(random.randint(10, 250)) for _ in range(3))})
        pods = tuple((second, random.randint(0, 4)) for second in steps)
        services = (Service(name="web", request={"cpu": random.randint(1, 4)}, priority=1000, replicas=pods),)
    scenario = Scenario(
        name=f"seed-{seed}",
        about="",
        seconds=END_S,
        nodes=tuple(nodes),
        node_labels=tuple(labels),
        system={},
        jobs=_jobs(random, has_queues),
        services=services,
        times=Times(drain=(0.5, random.choice([2.0, 10.0, 30.0]))),
        queues=queues,
    )
    faults = tuple(
        Fault(
            second=random.uniform(1, FAULTS_S),
            action=random.choice(ACTIONS),
            target=random.random(),
            size=random.random(),
        )
        for _ in range(random.randint(2, 16))
    )
    return scenario, (*faults, Fault(second=FAULTS_S, action="repair"))


def _jobs(random: Random, has_queues: bool) -> tuple[JobSpec, ...]:
    shapes = [
        (
            {"cpu": random.choice([1, 2, 3, 5]), **({"gpu": 1} if random.random() < 0.2 else {})},
            {"cpu": random.choice([1, 2, 4])},
            random.choice([ANYWHERE, ANYWHERE, POOL]),
        )
        for _ in range(random.randint(1, 2))
    ]
    found = []
    for number in range(random.randint(1, 6)):
        worker, ps, constraint = random.choice(shapes)
        least = random.choice([1, 1, 1, 2, 3])
        ps_min = random.choice([0, 1, 1, 2])
        found.append(
            JobSpec(
                name=f"job-{number}",
                submit_s=random.choice([0.0, 0.0, random.uniform(0, 200)]),
                master=Group(request={"cpu": 1}),
                ps=Group(request=ps, min=ps_min, max=max(ps_min, random.choice([1, 2, 4]))),
                worker=Group(
                    request=worker, min=least, max=max(least, random.choice([least, 4, 10, 30])), constraint=constraint
                ),
                curve=random.choice([Curve(), Curve(((1, 1.0), (4, 3.6), (6, 3.8)))]),
                workers_per_ps=random.choice([3.0, 8.0]),
                work=random.choice([None, None, random.uniform(20, 600)]),
                priority=random.choice([0, 0, 1, 5]),
                weight=random.choice([1.0, 1.0, 3.0]),
                queue=random.choice(["x", "y", ""]) if has_queues else "",
            )
        )

    return tuple(found)
