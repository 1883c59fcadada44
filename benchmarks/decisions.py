"""How long the scheduling core takes for a decision in a large cluster: ``python benchmarks/decisions.py``.

From scratch, with a cluster that is filled, and with some of the jobs replaced by new ones before each decision.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from dataclasses import replace

from elasticdl.controller.core import Cluster, Group, Job, Node, Pod, Targets, decide

_CPU = (1000, 2000, 4000, 5000, 8000, 16000)
_MEMORY = (2048, 4096, 8192, 16384)


def _cluster(nodes: int) -> Cluster:
    kinds = ({"cpu": 31_000, "memory": 120_000}, {"cpu": 63_000, "memory": 250_000}, {"cpu": 95_000, "memory": 380_000})
    return Cluster(
        nodes=tuple(
            Node(name=f"node-{number:05}", allocatable=kinds[number % len(kinds)] | {"pods": 110})
            for number in range(nodes)
        )
    )


def _job(number: int, shapes: int) -> Job:
    chosen = random.Random(number % shapes)
    return Job(
        name=f"job-{number:05}",
        master=Group(request={"cpu": 1000, "memory": 1024, "pods": 1}),
        ps=Group(request={"cpu": chosen.choice(_CPU[:3]), "memory": 4096, "pods": 1}, min=1, max=4),
        worker=Group(
            request={
                "cpu": chosen.choice(_CPU) + (chosen.randrange(1000) if shapes > len(_CPU) * len(_MEMORY) else 0),
                "memory": chosen.choice(_MEMORY),
                "pods": 1,
            },
            min=1,
            max=30,
        ),
        created_s=float(number),
    )


def _after(cluster: Cluster, jobs: dict[str, Job], targets: Targets) -> Cluster:
    """The cluster once all orders are done."""
    gone = {pod for target in targets.jobs for pod in target.drains}
    started = [
        Pod(
            name=start.pod,
            job=start.job,
            role=start.role,
            node=start.node,
            request=jobs[start.job].group(start.role).request,
        )
        for target in targets.jobs
        for start in target.starts
    ]
    return replace(cluster, pods=(*(pod for pod in cluster.pods if pod.name not in gone), *started))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--shapes", type=int, default=24, help="different jobs")
    parser.add_argument("--changed", type=int, default=20, help="jobs that end and are submitted before each decision")
    parser.add_argument("--decisions", type=int, default=10)
    arguments = parser.parse_args()
    cluster = _cluster(arguments.nodes)
    jobs = {job.name: job for job in (_job(number, arguments.shapes) for number in range(arguments.jobs))}
    began_s = time.process_time()
    targets = decide(cluster, jobs.values(), 0.0)
    _say(f"from scratch: {time.process_time() - began_s:.2f} s of CPU, {_starts(targets)} pods")
    for _ in range(3):
        cluster = _after(cluster, jobs, targets)
        targets = decide(cluster, jobs.values(), 0.0)
        if not _starts(targets):
            break
    taken_s, number = [], arguments.jobs
    for turn in range(arguments.decisions):
        for name in list(jobs)[turn :: arguments.jobs // arguments.changed][: arguments.changed]:
            del jobs[name]
        cluster = replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.job in jobs))
        for _ in range(arguments.changed):
            job = _job(number, arguments.shapes)
            jobs[job.name] = job
            number += 1
        began_s = time.process_time()
        targets = decide(cluster, jobs.values(), 0.0)
        taken_s.append(time.process_time() - began_s)
        cluster = _after(cluster, jobs, targets)
    _say(
        f"{arguments.changed} of {arguments.jobs} jobs changed: median {1e3 * statistics.median(taken_s):.0f} ms, "
        f"worst of {len(taken_s)} {1e3 * max(taken_s):.0f} ms of CPU; {_starts(targets)} pods started by the last; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _starts(targets: Targets) -> int:
    return sum(len(target.starts) for target in targets.jobs)


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
