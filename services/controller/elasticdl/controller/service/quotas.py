"""Queues, as a ConfigMap has them, and the ResourceQuotas of namespaces. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.controller.core import Budget, Queue
from elasticdl.controller.core.resources import Resources
from elasticdl.controller.service.observing import resources_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.kinds import Manifest

_FIELDS = {"quota", "limit"}


def read_queues(config_map: Manifest) -> tuple[list[Queue], list[str]]:
    """The queues of a ConfigMap, by name, and what is wrong with the others."""
    import yaml

    queues, problems = [], []
    for name, text in sorted((config_map.get("data") or {}).items()):
        try:
            queues.append(_queue(name, yaml.safe_load(text)))
        except (yaml.YAMLError, UserError, ValueError) as error:
            problems.append(f"queue {name}: {' '.join(str(error).split())}")
    return queues, problems


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuota:
    """What a ResourceQuota says of the requests of pods."""

    name: str
    namespace: str
    hard: Resources


def read_resource_quota(manifest: Manifest) -> NamespaceQuota | None:
    """A ResourceQuota; None: it is for some pods only, or does not limit their requests."""
    spec, metadata = manifest.get("spec") or {}, manifest["metadata"]
    if spec.get("scopes") or spec.get("scopeSelector"):
        return None
    hard = {}
    for name, quantity in (spec.get("hard") or {}).items():
        if name in ("cpu", "memory", "ephemeral-storage", "pods"):
            hard[name] = quantity
        elif name.startswith("requests.") and name != "requests.storage":
            hard[name.removeprefix("requests.")] = quantity
        elif name == "count/pods":
            hard["pods"] = quantity
    if not hard:
        return None
    name = f"ResourceQuota {metadata['namespace']}/{metadata['name']}"
    return NamespaceQuota(name=name, namespace=metadata["namespace"], hard=resources_of(hard, math.floor))


def budgets_of(quotas: Iterable[NamespaceQuota], others: Mapping[str, Resources]) -> tuple[Budget, ...]:
    """What ResourceQuotas leave for jobs; ``others``: by namespace, the requests of all other pods."""
    return tuple(
        Budget(
            name=each.name,
            namespace=each.namespace,
            most={name: most - others.get(each.namespace, {}).get(name, 0) for name, most in each.hard.items()},
        )
        for each in sorted(quotas, key=lambda each: each.name)
    )


def _queue(name: str, fields: Any) -> Queue:
    if not isinstance(fields, Mapping) or "quota" not in fields:
        raise UserError("a queue needs a quota, such as quota: {cpu: 40}")
    if unknown := set(fields) - _FIELDS:
        raise UserError(f"there is no field {min(map(str, unknown))}: a queue has a quota, and may have a limit")
    limit = fields.get("limit")
    return Queue(
        name=name, quota=_amounts(fields["quota"], "quota"), limit=None if limit is None else _amounts(limit, "limit")
    )


def _amounts(quantities: Any, what: str) -> Resources:
    if not isinstance(quantities, Mapping) or not quantities:
        raise UserError(f"{what} needs amounts of resources, such as {what}: {{cpu: 40}}")
    return resources_of({str(resource): str(quantity) for resource, quantity in quantities.items()}, math.floor)
