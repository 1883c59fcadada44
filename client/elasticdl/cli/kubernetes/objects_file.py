"""The objects of a job as a YAML file, for ``kubectl create``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.storage.atomic import replace_text


def objects_text(objects: Sequence[Manifest]) -> str:
    """The objects as YAML documents, with files as blocks of lines. The Job is not suspended."""
    import yaml  # Comes with the package kubernetes.

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """A dumper of its own, because representers are added to classes."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    copies = json.loads(json.dumps(objects))
    for each in copies:
        each.get("spec", {}).pop("suspend", None)
    return str(yaml.dump_all(copies, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def write_objects(objects: Sequence[Manifest], file: Path) -> None:
    """Write the objects to a file that only its owner can read: it holds the job's Secret."""
    replace_text(file, objects_text(objects), mode=0o600)
