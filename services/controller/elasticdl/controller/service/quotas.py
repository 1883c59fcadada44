"""Queues, as a ConfigMap has them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elasticdl.controller.core import Queue
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


def _queue(name: str, fields: Any) -> Queue:
    if not isinstance(fields, Mapping) or "quota" not in fields or (unknown := set(fields) - _FIELDS):
        found = f", and has no field {min(unknown)}" if isinstance(fields, Mapping) and "quota" in fields else ""
        raise UserError(f"it has a quota, and may have a limit{found}")
    limit = fields.get("limit")
    return Queue(
        name=name, quota=_amounts(fields["quota"], "quota"), limit=None if limit is None else _amounts(limit, "limit")
    )


def _amounts(quantities: Any, what: str) -> Resources:
    if not isinstance(quantities, Mapping) or not quantities:
        raise UserError(f"its {what} has amounts of resources, such as cpu: 40")
    return resources_of({str(resource): str(quantity) for resource, quantity in quantities.items()}, math.floor)
