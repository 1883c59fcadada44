"""The objects of a job as a YAML file, for ``kubectl create``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.storage.atomic import replace_text


def objects_text(objects: Sequence[Manifest]) -> str:
    """The objects as YAML documents. The Job is not suspended."""
    import yaml  # Comes with the package kubernetes.

    copies = json.loads(json.dumps(objects))
    for each in copies:
        each.get("spec", {}).pop("suspend", None)
    return str(yaml.safe_dump_all(copies, sort_keys=False))


def write_objects(objects: Sequence[Manifest], file: Path) -> None:
    """Write the objects to a file that only its owner can read: it holds the job's Secret."""
    replace_text(file, objects_text(objects), mode=0o600)
