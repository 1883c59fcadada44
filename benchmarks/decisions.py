"""How long the scheduling core takes for a decision in a large cluster: ``python benchmarks/decisions.py``.

From scratch in an empty cluster and in a full one, and with a plan that is kept: then some jobs change before each
decision. They end and others are submitted (``replaced``), or have another maximum or new measurements (``edited``).
Last, one node vanishes with its pods before each decision.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import time
from dataclasses import replace

from elasticdl.controller.core import Cluster, Group, Job, Node, Planner, Pod, Targets, decide

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
    parser.add_argument("--changed", type=int, default=100, help="jobs that change before each decision")
    parser.add_argument("--decisions", type=int, default=10, help="of each kind")
    parser.add_argument("--checks", action="store_true", help="whether each decision is the one from scratch")
    arguments = parser.parse_args()
    cluster = _cluster(arguments.nodes)
    jobs = {job.name: job for job in (_job(number, arguments.shapes) for number in range(arguments.jobs))}
    planner = Planner()

    def decision() -> tuple[Targets, float, float]:
        began_s = time.process_time()
        changes = planner.view.changes_to(cluster, jobs.values())
        found_s = time.process_time()
        gc.disable()  # As the controller does.
        targets = planner.decide(changes, 0.0)
        gc.enable()
        taken_s = time.process_time() - found_s
        if arguments.checks and decide(cluster, jobs.values(), 0.0) != targets:
            raise SystemExit("A plan that was kept decides otherwise.")
        return targets, taken_s, found_s - began_s

    targets, taken_s, _ = decision()
    _say(f"from scratch, empty: {taken_s:.2f} s of CPU, {_starts(targets)} pods start")
    for _ in range(3):
        cluster = _after(cluster, jobs, targets)
        targets, _, _ = decision()
        if not _starts(targets):
            break
    gc.collect()
    gc.freeze()  # As the controller does after its first decision.
    gc.disable()
    began_s = time.process_time()
    decide(cluster, jobs.values(), 0.0)
    gc.enable()
    _say(f"from scratch, {len(cluster.pods)} pods run: {time.process_time() - began_s:.2f} s of CPU")
    number = arguments.jobs
    for kind in ("edited", "replaced"):
        taken, found, starts = [], [], []
        for turn in range(arguments.decisions):
            chosen = list(jobs)[turn :: arguments.jobs // arguments.changed][: arguments.changed]
            for name in chosen:
                if kind == "edited":
                    jobs[name] = _edited(jobs[name], turn)
                else:
                    del jobs[name]
                    jobs[f"job-{number:05}"] = _job(number, arguments.shapes)
                    number += 1
            cluster = replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.job in jobs))
            targets, taken_s, found_s = decision()
            taken.append(taken_s)
            found.append(found_s)
            starts.append(_starts(targets))
            cluster = _after(cluster, jobs, targets)
        _say(
            f"{arguments.changed} of {arguments.jobs} jobs {kind}: median {1e3 * statistics.median(taken):.0f} ms, "
            f"worst of {len(taken)} {1e3 * max(taken):.0f} ms of CPU, {statistics.median(starts):.0f} pods start; "
            f"{1e3 * statistics.median(found):.0f} ms to find what has changed; load {os.getloadavg()[0]:.1f}"
        )
    taken = []
    for turn in range(arguments.decisions):
        gone = cluster.nodes[turn * len(cluster.nodes) // arguments.decisions].name
        nodes = tuple(node for node in cluster.nodes if node.name != gone)
        cluster = replace(cluster, nodes=nodes, pods=tuple(pod for pod in cluster.pods if pod.node != gone))
        targets, taken_s, _ = decision()
        taken.append(taken_s)
        cluster = _after(cluster, jobs, targets)
    _say(
        f"a node vanishes: median {1e3 * statistics.median(taken):.0f} ms, worst of {len(taken)} "
        f"{1e3 * max(taken):.0f} ms of CPU"
    )


def _edited(job: Job, turn: int) -> Job:
    """Another maximum, or another estimate."""
    if turn % 2:
        return replace(job, worker=replace(job.worker, max=20 + (job.worker.max + 5) % 15))
    return replace(job, remaining_s=1000.0 + turn)


def _starts(targets: Targets) -> int:
    return sum(len(target.starts) for target in targets.jobs)


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
