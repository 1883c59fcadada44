"""``--volume``: ``claim_name=PVC,mount_path=DIR`` and ``host_path=DIR,mount_path=DIR``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.shared.errors import UserError

_KEYS = ("claim_name", "host_path", "type", "mount_path", "sub_path", "read_only")
_FORM = "Give claim_name=PVC,mount_path=DIR or host_path=DIR,mount_path=DIR."


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes that users ask for."""

    volumes: Sequence[dict[str, Any]] = ()
    mounts: Sequence[dict[str, Any]] = field(default=())

    def contains(self, path: str) -> bool:
        """Whether a path inside the pods is in one of the volumes."""
        return any(
            path == mount["mountPath"] or path.startswith(mount["mountPath"].rstrip("/") + "/") for mount in self.mounts
        )


def parse_volumes(text: str) -> Volumes:
    """Read the flag; volumes with the same source are one volume with several mounts."""
    sources: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for facts in volume_items(text):
        source = _source(facts)
        if source not in sources:
            sources.append(source)
        mount: dict[str, Any] = {"name": f"volume-{sources.index(source)}", "mountPath": facts["mount_path"]}
        if sub_path := facts.get("sub_path"):
            mount["subPath"] = sub_path
        if facts.get("read_only") == "true":
            mount["readOnly"] = True
        mounts.append(mount)
    volumes = [{"name": f"volume-{number}", **source} for number, source in enumerate(sources)]
    return Volumes(volumes=volumes, mounts=mounts)


def volume_items(text: str) -> list[dict[str, str]]:
    """The keys and values of each volume of the flag."""
    return [_parse(item) for item in filter(None, (part.strip() for part in text.split(";")))]


def _parse(item: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    for part in item.split(","):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or key not in _KEYS or key in facts or not value:
            raise UserError(f"--volume={item}: {part.strip()!r} is not valid", hint=_FORM, usage=True)
        facts[key] = value
    if ("claim_name" in facts) == ("host_path" in facts) or "mount_path" not in facts:
        raise UserError(f"--volume={item} does not say what to mount, or where", hint=_FORM, usage=True)
    if not facts["mount_path"].startswith("/"):
        raise UserError(f"--volume={item}: mount_path must be absolute", usage=True)
    return facts


def _source(facts: dict[str, str]) -> dict[str, Any]:
    if "claim_name" in facts:
        return {"persistentVolumeClaim": {"claimName": facts["claim_name"]}}
    kind = {"type": facts["type"]} if "type" in facts else {}
    return {"hostPath": {"path": facts["host_path"], **kind}}
