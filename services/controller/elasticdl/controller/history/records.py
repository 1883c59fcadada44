"""The lines of a fleet's log. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.controller.core import Budget, Changes, Drain, Job, JobTarget, Node, Pod, Policy, Queue, Start, View
from elasticdl.controller.history.values import of_json, to_json
from elasticdl.shared.errors import FormatError, ProtocolError

FORMAT = "elasticdl fleet"
VERSION = 1
_NAMED: Mapping[str, type] = {"nodes": Node, "pods": Pod, "jobs": Job, "starts": Start, "drains": Drain}
"""Parts of what has changed that have names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decision.

    Attributes:
        time_s: when, in seconds since 1970 (in a simulation: since its start).
        changes: what was new.
        targets: of jobs whose target is another one than before; None: the job is gone.
    """

    time_s: float
    changes: Changes = field(default_factory=Changes)
    targets: Mapping[str, JobTarget | None] = field(default_factory=dict)


def header_line(policy: Policy) -> str:
    """The first line of a log."""
    return _line({"format": FORMAT, "version": VERSION, "policy": to_json(policy)})


def policy_of(line: str, where: str) -> Policy:
    """The policy in the first line of a log.

    Raises:
        FormatError: it is the log of a later version.
        ProtocolError: it is no such line.
    """
    try:
        values = json.loads(line)
        if values["format"] != FORMAT:
            raise ValueError(values["format"])
        if values["version"] > VERSION:
            raise FormatError(
                f"{where} is in version {values['version']} of the format, this program reads up to version {VERSION}"
            )
        return of_json(Policy, values["policy"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProtocolError(f"{where} is no log of a fleet") from error


def changes_to_json(changes: Changes, view: View) -> dict[str, Any]:
    """What has changed since a view, before that knows it."""
    found: dict[str, Any] = {}
    for part in _NAMED:
        known = getattr(view, part)
        if named := getattr(changes, part):
            found[part] = {
                name: None if each is None else to_json(each, known.get(name)) for name, each in named.items()
            }
    for part in ("queues", "budgets"):
        if (all_of_them := getattr(changes, part)) is not None:
            found[part] = to_json(all_of_them)
    return found


def record_line(time_s: float, changes: Mapping[str, Any], targets: Mapping[str, JobTarget | None]) -> str:
    """A line of a log."""
    line: dict[str, Any] = {"s": time_s}
    if changes:
        line["changes"] = changes
    if targets:
        line["targets"] = {name: None if each is None else to_json(each) for name, each in targets.items()}
    return _line(line)


def record_of(line: str, view: View, where: str) -> Record:
    """Inverse of ``record_line``; the view is that before the record.

    Raises:
        ProtocolError: it is no such line.
    """
    try:
        values = json.loads(line)
        changes = values.get("changes", {})
        named = {
            part: {
                name: None if each is None else of_json(kind, each, getattr(view, part).get(name))
                for name, each in changes.get(part, {}).items()
            }
            for part, kind in _NAMED.items()
        }
        queues, budgets = changes.get("queues"), changes.get("budgets")
        return Record(
            time_s=float(values["s"]),
            changes=Changes(
                **named,
                queues=None if queues is None else tuple(of_json(Queue, each) for each in queues),
                budgets=None if budgets is None else tuple(of_json(Budget, each) for each in budgets),
            ),
            targets={
                name: None if each is None else of_json(JobTarget, each)
                for name, each in values.get("targets", {}).items()
            },
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ProtocolError(f"{where} can't be read: {error}") from error


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":")) + "\n"
