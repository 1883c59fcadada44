"""What the core has been told so far, and what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from elasticdl.controller.core.cluster import Cluster, Drain, Node, Pod, Start
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.queues import Budget, Queue

T = TypeVar("T")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)
P = TypeVar("P", Pod, Start)
Q = TypeVar("Q", Pod, Start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is new, by name; None: it is gone.

    Attributes:
        starts: expected starts, by the name of the pod. ``drains``: likewise.
        queues: all of them; None: as before. ``budgets``: likewise.
    """

    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    pods: Mapping[str, Pod | None] = field(default_factory=dict)
    jobs: Mapping[str, Job | None] = field(default_factory=dict)
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    drains: Mapping[str, Drain | None] = field(default_factory=dict)
    queues: tuple[Queue, ...] | None = None
    budgets: tuple[Budget, ...] | None = None

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        named = self.nodes or self.pods or self.jobs or self.starts or self.drains
        return bool(named) or self.queues is not None or self.budgets is not None


class View:
    """The sum of all changes: a cluster and its jobs, by name."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}
        self.starts: dict[str, Start] = {}
        self.drains: dict[str, Drain] = {}
        self.queues: tuple[Queue, ...] = ()
        self.budgets: tuple[Budget, ...] = ()
        self.pods_of: dict[str, set[str]] = {}
        """Job -> names of its pods, expected ones included."""

    def apply(self, changes: Changes) -> None:
        """Add what has changed."""
        _apply(self.nodes, changes.nodes)
        _apply(self.jobs, changes.jobs)
        self._apply_pods(self.pods, changes.pods, self.starts)
        self._apply_pods(self.starts, changes.starts, self.pods)
        _apply(self.drains, changes.drains)
        self.queues = self.queues if changes.queues is None else changes.queues
        self.budgets = self.budgets if changes.budgets is None else changes.budgets

    def _apply_pods(self, known: dict[str, P], changed: Mapping[str, P | None], others: Mapping[str, Q]) -> None:
        """``others``: what is known of pods with the same names besides, the expected ones or those that are there."""
        pods_of = self.pods_of
        for name, pod in changed.items():
            before = known.pop(name, None)
            if before is not None and ((other := others.get(name)) is None or other.job != before.job):
                self._forget(before.job, name)
            if pod is not None:
                known[name] = pod
                if pod.job:
                    try:
                        pods_of[pod.job].add(name)
                    except KeyError:
                        pods_of[pod.job] = {name}

    def _forget(self, job: str, pod: str) -> None:
        if (pods := self.pods_of.get(job)) is not None:
            pods.discard(pod)
            if not pods:
                del self.pods_of[job]

    def changes_to(self, cluster: Cluster, jobs: Iterable[Job]) -> Changes:
        """What leads from here to a cluster and its jobs."""
        starts = {order.pod: order for order in cluster.ordered if isinstance(order, Start)}
        drains = {order.pod: order for order in cluster.ordered if isinstance(order, Drain)}
        return Changes(
            nodes=_difference(self.nodes, _by_name(cluster.nodes)),
            pods=_difference(self.pods, _by_name(cluster.pods)),
            jobs=_difference(self.jobs, _by_name(jobs)),
            starts=_difference(self.starts, starts),
            drains=_difference(self.drains, drains),
            queues=None if cluster.queues == self.queues else cluster.queues,
            budgets=None if cluster.budgets == self.budgets else cluster.budgets,
        )

    def cluster(self) -> Cluster:
        """The cluster as one value."""
        return Cluster(
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            ordered=(*self.starts.values(), *self.drains.values()),
            queues=self.queues,
            budgets=self.budgets,
        )


def _by_name(found: Iterable[N]) -> dict[str, N]:
    return {each.name: each for each in found}


def _apply(known: dict[str, T], changed: Mapping[str, T | None]) -> None:
    for name, value in changed.items():
        if value is None:
            known.pop(name, None)
        else:
            known[name] = value


def _difference(before: Mapping[str, T], after: Mapping[str, T]) -> dict[str, T | None]:
    found: dict[str, T | None] = {}
    get: Callable[[str], T | None] = before.get
    for name, value in after.items():
        # What is the same object needs no comparison, and most are.
        if (known := get(name)) is not value and known != value:
            found[name] = value
    if len(before) + sum(name not in before for name in found) != len(after):
        found.update(dict.fromkeys(before.keys() - after.keys()))
    return found
