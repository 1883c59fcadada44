"""What pods demand of their node, from their manifests. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from elasticdl.cli.kubernetes.manifests.patches import merge
from elasticdl.controller.core import ANYWHERE, Constraint, Requirement, Taint, Toleration
from elasticdl.controller.core.placement import NODE_NAME
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.training_job import RoleSpec, TrainingJobSpec
from elasticdl.shared.words import listed

_FIELDS = ("nodeSelector", "affinity", "tolerations")


def taints_of(node: Manifest) -> tuple[Taint, ...]:
    """The taints of a node."""
    return tuple(
        Taint(key=each["key"], value=each.get("value") or "", effect=each.get("effect") or "")
        for each in (node.get("spec") or {}).get("taints") or ()
    )


def constraint_of(spec: Mapping[str, Any]) -> Constraint:
    """What the ``spec`` of a pod demands."""
    if not any(spec.get(field) for field in _FIELDS):
        return ANYWHERE
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return Constraint(
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        terms=tuple(_term(each) for each in required.get("nodeSelectorTerms") or ()),
        tolerations=tuple(
            Toleration(
                key=each.get("key") or "",
                operator=each.get("operator") or "Equal",
                value=each.get("value") or "",
                effect=each.get("effect") or "",
            )
            for each in spec.get("tolerations") or ()
        ),
    )


def constraint_of_role(spec: TrainingJobSpec, role: RoleSpec) -> Constraint:
    """What a pod of a TrainingJob demands: of all pods, then of its role, as the templates are merged."""
    patches = [spec.template.get("spec") or {}, role.template.get("spec") or {}]
    if not (spec.pods.node_selector or role.node_selector or role.tolerations or any(patches)):
        return ANYWHERE
    own = {
        "nodeSelector": {**role.node_selector, **(patches[1].get("nodeSelector") or {})},
        "affinity": patches[1].get("affinity") or {},
        "tolerations": [*role.tolerations, *(patches[1].get("tolerations") or ())],
    }
    merged: dict[str, Any] = {"nodeSelector": _labels(spec.pods.node_selector)}
    for patch in (patches[0], own):
        merged = merge(merged, {field: patch[field] for field in _FIELDS if patch.get(field)})
    return constraint_of(merged)


def _labels(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in listed(text))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _term(term: Manifest) -> tuple[Requirement, ...]:
    return (
        *_requirements(term.get("matchExpressions") or ()),
        *_requirements(term.get("matchFields") or (), NODE_NAME),
    )


def _requirements(expressions: Iterable[Manifest], key: str = "") -> Iterable[Requirement]:
    for each in expressions:
        values = tuple(each.get("values") or ())
        yield Requirement(key=key or each["key"], operator=each.get("operator") or "", values=values)
