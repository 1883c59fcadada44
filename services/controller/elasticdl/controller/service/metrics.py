"""What the controller measures, as Prometheus reads it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.controller.core import Cluster
from elasticdl.controller.core.resources import Resources, plus

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
        lines: list[str] = []
        _add(lines, "decisions_total", "counter", "Decisions about the whole cluster.", {"": self.decisions})
        _add(lines, "decision_seconds_total", "counter", "Seconds that decisions took.", {"": self.decision_s})
        _add(lines, "last_decision_seconds", "gauge", "Seconds that the last one took.", {"": self.last_decision_s})
        steps = {_label(step=name): number for name, number in sorted(self.steps.items())}
        _add(lines, "steps_total", "counter", "Steps taken for TrainingJobs.", steps)
        _add(lines, "refused_steps_total", "counter", "Steps that were refused.", {"": self.refusals})
        phases = {_label(phase=name): number for name, number in sorted(self.phases.items())}
        _add(lines, "training_jobs", "gauge", "TrainingJobs by phase.", phases)
        _add(lines, "nodes", "gauge", "Nodes that take pods.", {"": self.nodes})
        allocatable = {_label(resource=name): _amount(name, each) for name, each in sorted(self.allocatable.items())}
        _add(lines, "allocatable", "gauge", "What all nodes have, in cores, bytes or pieces.", allocatable)
        requested = {
            _label(owner=owner, resource=name): _amount(name, each)
            for owner, amounts in sorted(self.requested.items())
            for name, each in sorted(amounts.items())
        }
        _add(lines, "requested", "gauge", "What pods on these nodes request, in cores, bytes or pieces.", requested)
        return "".join(f"{line}\n" for line in lines)


def _amount(name: str, amount: int) -> float:
    return amount * _UNITS.get(name, 1.0)


def _label(**labels: str) -> str:
    quoted = (f'{name}="{value}"' for name, value in labels.items())
    return "{" + ",".join(quoted) + "}"


def _add(lines: list[str], name: str, kind: str, about: str, values: Mapping[str, float]) -> None:
    full = f"elasticdl_controller_{name}"
    lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
    lines += [f"{full}{labels} {value:.10g}" for labels, value in values.items()]
