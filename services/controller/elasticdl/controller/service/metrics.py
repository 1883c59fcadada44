"""What the controller measures, as Prometheus reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from elasticdl.controller.core import Cluster
from elasticdl.controller.core.resources import Resources, plus
from elasticdl.shared.monitoring.exposition import Family, text_of

_UNITS = {"cpu": 1e-3, "memory": float(1 << 20)}
"""The core counts CPU in thousandths and memory in MiB; Prometheus has cores and bytes."""


@dataclass(slots=True)
class Metrics:
    """Counts since the start of the process, and what the last turn has seen.

    Attributes:
        decisions: number of decisions; ``decision_s``: seconds of all of them, ``last_decision_s``: of the last one.
        steps: steps by name. ``refusals``: those that were refused.
        phases: TrainingJobs by phase.
        requested: by owner, which is ``jobs`` or ``others``.
    """

    decisions: int = 0
    decision_s: float = 0.0
    last_decision_s: float = 0.0
    steps: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    phases: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    allocatable: Resources = field(default_factory=dict)
    requested: Mapping[str, Resources] = field(default_factory=dict)

    def decided(self, seconds: float) -> None:
        """Count a decision."""
        self.decisions += 1
        self.decision_s += seconds
        self.last_decision_s = seconds

    def saw(self, cluster: Cluster, phases: Iterable[str]) -> None:
        """Note what a turn has seen."""
        names, allocatable = {node.name for node in cluster.nodes}, dict[str, int]()
        for node in cluster.nodes:
            allocatable = plus(allocatable, node.allocatable)
        requested: dict[str, Resources] = {"jobs": {}, "others": {}}
        for pod in cluster.pods:
            if pod.node in names:
                owner = "jobs" if pod.job else "others"
                requested[owner] = plus(requested[owner], pod.request)
        self.nodes, self.allocatable, self.requested = len(names), allocatable, requested
        self.phases = Counter(phases)

    def text(self) -> str:
        """All of them in the text format of Prometheus."""
        steps = _family("steps_total", "counter", "Steps taken for TrainingJobs.")
        for name, number in sorted(self.steps.items()):
            steps.add(number, step=name)
        phases = _family("training_jobs", "gauge", "TrainingJobs by phase.")
        for name, number in sorted(self.phases.items()):
            phases.add(number, phase=name)
        allocatable = _family("allocatable", "gauge", "What all nodes have, in cores, bytes or pieces.")
        for name, amount in sorted(self.allocatable.items()):
            allocatable.add(_amount(name, amount), resource=name)
        requested = _family("requested", "gauge", "What pods on these nodes request, in cores, bytes or pieces.")
        for owner, amounts in sorted(self.requested.items()):
            for name, amount in sorted(amounts.items()):
                requested.add(_amount(name, amount), owner=owner, resource=name)
        seconds = _family("decision_seconds_total", "counter", "Seconds that decisions took.").add(self.decision_s)
        return text_of(
            (
                _family("decisions_total", "counter", "Decisions about the whole cluster.").add(self.decisions),
                seconds,
                _family("last_decision_seconds", "gauge", "Seconds that the last one took.").add(self.last_decision_s),
                steps,
                _family("refused_steps_total", "counter", "Steps that were refused.").add(self.refusals),
                phases,
                _family("nodes", "gauge", "Nodes that take pods.").add(self.nodes),
                allocatable,
                requested,
            )
        )


def _amount(name: str, amount: int) -> float:
    return amount * _UNITS.get(name, 1.0)


def _family(name: str, kind: Literal["counter", "gauge"], about: str) -> Family:
    return Family(f"elasticdl_controller_{name}", kind, about)
