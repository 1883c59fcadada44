"""LimitRanges of namespaces: what pods request that do not say so, and what the API server refuses. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.controller.core.queues import amount_text
from elasticdl.controller.core.resources import Resources
from elasticdl.controller.service.observing import resources_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.quantities import amount

_TYPES = {"Container": "container", "Pod": "pod"}
"""Types of limits that count for pods of jobs, which have one container, and what they are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One item of a LimitRange.

    Attributes:
        what: container or pod.
        ratios: most that a limit may be of the request.
        requests: of containers that have none. ``limits``: likewise.
    """

    what: str
    least: Resources = field(default_factory=dict)
    most: Resources = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """What a LimitRange says of pods."""

    name: str
    namespace: str
    items: tuple[Limits, ...]


def read_limit_range(manifest: Manifest) -> LimitRange | None:
    """A LimitRange; None: it says nothing of pods."""
    metadata = manifest["metadata"]
    items = tuple(
        Limits(
            what=_TYPES[item["type"]],
            least=resources_of(item.get("min") or {}, math.ceil),
            most=resources_of(item.get("max") or {}, math.floor),
            ratios={name: amount(text) for name, text in (item.get("maxLimitRequestRatio") or {}).items()},
            requests=resources_of(item.get("defaultRequest") or {}, math.ceil),
            limits=resources_of(item.get("default") or {}, math.ceil),
        )
        for item in (manifest.get("spec") or {}).get("limits") or ()
        if item["type"] in _TYPES
    )
    if not items:
        return None
    name = f"LimitRange {metadata['namespace']}/{metadata['name']}"
    return LimitRange(name=name, namespace=metadata["namespace"], items=items)


def with_defaults(requests: Resources, limits: Resources, ranges: Iterable[LimitRange]) -> tuple[Resources, Resources]:
    """Requests and limits of a container as the API server completes them."""
    requests = {**limits, **requests}
    for item in (item for each in ranges for item in each.items):
        limits = {**item.limits, **limits}
        # A default limit counts as the default request, too.
        requests = {**item.limits, **item.requests, **requests}
    return requests, limits


def refusal(role: str, requests: Resources, limits: Resources, ranges: Sequence[LimitRange]) -> str:
    """Why the API server would refuse the pods of a role; empty: it would not.

    Args:
        requests: with defaults. ``limits``: likewise.
    """
    for each in ranges:
        for item in each.items:
            for name, most in sorted(item.most.items()):
                if (given := limits.get(name, requests.get(name, 0))) > most:
                    return _text(each, item, role, "at most", name, most, given)
            for name, least in sorted(item.least.items()):
                if (given := requests.get(name, 0)) < least:
                    return _text(each, item, role, "no less than", name, least, given)
            for name, ratio in sorted(item.ratios.items()):
                if limits.get(name, 0) > ratio * requests.get(name, 0):
                    return (
                        f"{each.name} allows a limit of {name} of at most {ratio:g} times the request, for a {role} too"
                    )
    return ""


def _text(found: LimitRange, item: Limits, role: str, bound: str, name: str, amount: int, given: int) -> str:
    return (
        f"{found.name} allows {bound} {amount_text(name, amount)} {name} for a {item.what}, "
        f"and a {role} asks for {amount_text(name, given)}"
    )
