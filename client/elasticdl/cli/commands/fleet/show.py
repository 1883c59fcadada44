"""``elasticdl fleet show``: the cluster that TrainingJobs share, at a glance."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import EVENT, NODE, POD, TRAINING_JOB, Manifest
from elasticdl.shared.kubernetes.names import JOB_LABEL, NAME_LABEL
from elasticdl.shared.kubernetes.quantities import amount
from elasticdl.shared.words import count

PERIOD_S = 2.0
_EVENTS_SHOWN = 8
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One resource of all nodes that take pods: in cores, bytes or pieces."""

    resource: str
    allocatable: float
    jobs: float
    others: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJob:
    """One TrainingJob, as its status says."""

    name: str
    queue: str
    phase: str
    workers: str
    ps: str
    progress: int | None
    remaining_s: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the command shows. ``decisions``: time, job and text of the latest events, the newest last."""

    nodes: int
    use: tuple[Use, ...]
    jobs: tuple[FleetJob, ...]
    decisions: tuple[tuple[str, str, str], ...]


def show(namespace: str, *, watch: bool, as_json: bool) -> None:
    """Print the cluster once, or again and again.

    Raises:
        ElasticDLError: the API server does not answer, or refuses.
    """
    console = plain_console()
    with contextlib.closing(KubernetesApi.connect(namespace=namespace)) as api:
        while True:
            fleet = _read(api, everywhere=not namespace)
            if as_json:
                print_json(console, fleet)
            else:
                if watch and console.is_terminal:
                    console.clear()
                _print(fleet)
            if not watch:
                return
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(PERIOD_S)
                continue
            return


def _read(api: KubernetesApi, *, everywhere: bool) -> Fleet:
    return view(
        nodes=api.list(NODE).items,
        pods=api.list(POD, everywhere=True).items,
        training_jobs=api.list(TRAINING_JOB, everywhere=everywhere).items,
        events=api.list(EVENT, fields=f"involvedObject.kind={TRAINING_JOB.name}", everywhere=everywhere).items,
    )


def view(
    *,
    nodes: Iterable[Manifest],
    pods: Iterable[Manifest],
    training_jobs: Iterable[Manifest],
    events: Iterable[Manifest],
) -> Fleet:
    """What objects of the cluster say together."""
    open_nodes = {node["metadata"]["name"]: node for node in nodes if _takes_pods(node)}
    allocatable: dict[str, float] = {}
    for node in open_nodes.values():
        _add(allocatable, (node.get("status") or {}).get("allocatable") or {})
    jobs: dict[str, float] = {}
    others: dict[str, float] = {}
    for pod in pods:
        if pod["spec"].get("nodeName") in open_nodes and (pod.get("status") or {}).get("phase") not in _ENDED:
            labels = pod["metadata"].get("labels") or {}
            is_job = labels.get(NAME_LABEL) == "elasticdl" and JOB_LABEL in labels
            for container in pod["spec"]["containers"]:
                _add(jobs if is_job else others, _requests(container))
    shown = [name for name in allocatable if name in ("cpu", "memory") or (name in jobs and name != "pods")]
    ordered = sorted(training_jobs, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
    latest = sorted(events, key=lambda each: each.get("lastTimestamp") or "")[-_EVENTS_SHOWN:]
    return Fleet(
        nodes=len(open_nodes),
        use=tuple(
            Use(
                resource=name,
                allocatable=allocatable[name],
                jobs=jobs.get(name, 0.0),
                others=others.get(name, 0.0),
            )
            for name in sorted(shown)
        ),
        jobs=tuple(map(_job, ordered)),
        decisions=tuple(
            (each.get("lastTimestamp") or "", each["involvedObject"]["name"], each.get("message") or "")
            for each in latest
        ),
    )


def _takes_pods(node: Manifest) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not (node.get("spec") or {}).get("unschedulable")


def _requests(container: Manifest) -> Mapping[str, str]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _add(total: dict[str, float], quantities: Mapping[str, str]) -> None:
    for name, quantity in quantities.items():
        total[name] = total.get(name, 0.0) + float(amount(quantity))


def _job(manifest: Manifest) -> FleetJob:
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    return FleetJob(
        name=f"{metadata['namespace']}/{metadata['name']}",
        queue=manifest["spec"].get("queue", ""),
        phase=status.get("phase", ""),
        workers=status.get("workersText", ""),
        ps=status.get("psText", ""),
        progress=status.get("progress"),
        remaining_s=status.get("remainingSeconds"),
        reason=status.get("reason", "no controller has seen it"),
    )


def _print(fleet: Fleet) -> None:
    console = plain_console()
    waiting = sum(job.phase in ("Waiting", "Suspended", "") for job in fleet.jobs)
    console.print(
        f"{count(fleet.nodes, 'node')}, {count(len(fleet.jobs), 'TrainingJob')}, {waiting} of them without pods"
    )
    rows: Sequence[Sequence[str]] = [
        [use.resource, _percent(use.jobs, use), _percent(use.others, use), _percent(_free(use), use)]
        for use in fleet.use
    ]
    print_table(console, ["resource", "jobs", "others", "free"], rows)
    print_table(
        console,
        ["job", "queue", "phase", "workers", "ps", "progress", "remaining", "reason"],
        [
            [
                job.name,
                job.queue,
                job.phase,
                job.workers,
                job.ps,
                "" if job.progress is None else f"{job.progress} %",
                "" if job.remaining_s is None else f"{job.remaining_s} s",
                job.reason,
            ]
            for job in fleet.jobs
        ],
    )
    print_table(console, ["time", "job", "decision"], [list(each) for each in fleet.decisions])


def _free(use: Use) -> float:
    return use.allocatable - use.jobs - use.others


def _percent(part: float, use: Use) -> str:
    return f"{100 * part / use.allocatable:.1f} %" if use.allocatable else ""
