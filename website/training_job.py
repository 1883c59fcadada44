"""The page of the Kubernetes resource TrainingJob: its fields, from the schema that the API server has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticdl.shared.kubernetes.kinds import TRAINING_JOB
from elasticdl.shared.kubernetes.training_job.definition import object_schema
from website.markdown import table, unbroken

_HEADINGS = ("field", "type", "default", "meaning")
_SECTIONS = (("spec.job", "The job"), ("spec", "Everything else of spec"), ("status", "The status"))

_INTRODUCTION = (
    f"`apiVersion: {TRAINING_JOB.api_version}`, `kind: {TRAINING_JOB.name}`, short name `tj`. `kubectl explain "
    "trainingjob.spec.worker.max` shows the same texts. See [TrainingJob](../trainingjob.md) for how to use it.\n"
)


def page() -> str:
    """Markdown of the whole page."""
    rows = dict(_rows(object_schema(), ""))
    parts = ["# Fields of TrainingJob\n", _INTRODUCTION]
    for prefix, title in _SECTIONS:
        own = [path for path in rows if path.startswith(f"{prefix}.")]
        parts += [f"## {title}\n", table(_HEADINGS, [(unbroken(path), *rows.pop(path)) for path in own])]
    parts += ["## Rules\n", "The API server refuses an object that breaks one of these:\n"]
    parts.append("".join(f"- {message}\n" for message in _messages(object_schema())))
    return "\n".join(parts)


def _rows(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """(path, (type, default, meaning)) of each field. The items of a list are under ``path[]``."""
    for name, field in schema.get("properties", {}).items():
        own = f"{path}.{name}" if path else name
        yield own, (_type(field), _default(field), _meaning(field))
        yield from _rows(field, own)
        yield from _rows(field.get("items", {}), f"{own}[]")


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in field:
        return f"list of {field['items']['type']}s"
    return "map" if "additionalProperties" in field else str(field["type"])


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _meaning(field: Mapping[str, Any]) -> str:
    meaning = str(field.get("description", "")).replace("<", "&lt;").replace("|", "\\|")
    if "enum" in field:
        meaning += f" One of {', '.join(f'`{each}`' for each in field['enum'])}."
    if "minimum" in field and "maximum" in field:
        meaning += f" From {field['minimum']} to {field['maximum']}."
    return meaning


def _messages(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for field in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from _messages(field)
