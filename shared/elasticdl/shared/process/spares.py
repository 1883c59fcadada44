"""What the launcher and a spare worker exchange, besides the ``Handover``; see ``elasticdl.worker.spare``."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

_LOG, _OUTPUT = "ELASTICDL_SPARE_LOG", "ELASTICDL_SPARE_OUTPUT"


def ready_file(folder: Path, number: int) -> Path:
    """Exists once a spare has built the model; its content is the id of the process."""
    return folder / f"ready-{number}"


def with_output(environment: Mapping[str, str], log: Path, output: Path | None) -> dict[str, str]:
    """The environment of a worker, and the files that it writes to from now on."""
    return {**environment, _LOG: str(log), _OUTPUT: str(output or log)}


def redirect_output(environment: MutableMapping[str, str]) -> None:
    """In a spare: write to the files that the launcher names, and take them out of the environment."""
    for name, descriptor in ((_OUTPUT, 1), (_LOG, 2)):
        opened = os.open(environment.pop(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
