"""Which nodes a pod may run on: node selectors, node affinity, taints and tolerations, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

NODE_NAME = "metadata.name"
"""Key of a requirement for the name of the node."""
_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Keeps pods away from a node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Lets a pod onto nodes with a taint. Empty key: with any taint; empty effect: any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates a taint."""
        if self.effect not in ("", taint.effect) or (self.key and self.key != taint.key):
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A condition on a label of the node: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node has such a label. An operator that is not known holds nowhere, as in the scheduler."""
        found = name if self.key == NODE_NAME else labels.get(self.key)
        match self.operator:
            case "In":
                return found in self.values
            case "NotIn":
                return found not in self.values
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
            case "Gt" | "Lt":
                return self._compares(found)
        return False

    def _compares(self, found: str | None) -> bool:
        try:
            difference = int(found or "") - int(self.values[0])
        except (ValueError, IndexError):
            return False
        return difference > 0 if self.operator == "Gt" else difference < 0


class Constraint(NamedTuple):
    """What a pod demands of its node.

    Attributes:
        selector: labels and their values; all must be there.
        terms: of the required node affinity. The requirements of at least one term hold; none: no affinity.
        tolerations: for taints of the node.
    """

    # A tuple, because searches are found by it: it is hashed and compared in C.

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def allows(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        """Whether a node with these labels and taints may run the pod."""
        for taint in taints:
            if taint.effect in _KEEPS_PODS_AWAY and not any(each.covers(taint) for each in self.tolerations):
                return False
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        # A term without requirements matches no node.
        return not self.terms or any(term and all(each.holds(name, labels) for each in term) for term in self.terms)


ANYWHERE = Constraint()
"""Any node without taints."""
