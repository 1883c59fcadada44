"""``--cluster_spec``: strategic merge patches of pod templates, as ``kubectl patch`` applies them on the API server.

Maps are merged, ``null`` deletes a field, and lists with a merge key are merged item by item; others are replaced. An
item with ``$patch: delete`` deletes the item with its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.shared.errors import UserError

ALL = "all"
SECTIONS = (ALL, "master", "worker", "ps")
MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Merge key of each list of a pod's specification that has one, from the Kubernetes API."""
_DIRECTIVE = "$patch"


def check_patches(file: str, content: object) -> dict[str, dict[str, Any]]:
    """The patches of a file by section."""
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        raise UserError(f"--cluster_spec={file} holds no patches by section", hint=_sections(), usage=True)
    for section, patch in content.items():
        if section not in SECTIONS:
            raise UserError(f"--cluster_spec={file} has the unknown section {section!r}", hint=_sections(), usage=True)
        if unknown := set(patch) - {"metadata", "spec"}:
            raise UserError(
                f"--cluster_spec={file}: {section} has the unknown field {min(unknown)!r}",
                hint="A section is a pod template, with metadata and spec.",
                usage=True,
            )
    return content


def _sections() -> str:
    return f"Give pod templates under {', '.join(SECTIONS)}."


def patched(template: dict[str, Any], service: str, patches: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A pod template after the patches of all pods and of its service."""
    for section in (ALL, service):
        template = merge(template, patches.get(section, {}))
    return template


def merge(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """An object after a strategic merge patch."""
    if patch.get(_DIRECTIVE) == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    merged = dict(original)
    for name, value in patch.items():
        before = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = merge(before if isinstance(before, Mapping) else {}, value)
        elif isinstance(value, list) and name in MERGE_KEYS and isinstance(before, list):
            merged[name] = _merge_items(before, value, MERGE_KEYS[name])
        else:
            merged[name] = value
    return merged


def _merge_items(original: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    items = [dict(item) for item in original]
    for change in patch:
        places = [place for place, item in enumerate(items) if item.get(key) == change.get(key)]
        if change.get(_DIRECTIVE) == "delete":
            items = [item for item in items if item.get(key) != change.get(key)]
        elif places:
            items[places[0]] = merge(items[places[0]], change)
        else:
            items.append(dict(change))
    return items
