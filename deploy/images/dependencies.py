"""Print the requirements of one service: the dependencies of the package, and those of the service's extra."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
print(*project["dependencies"], *project["optional-dependencies"][sys.argv[1]], sep="\n")  # noqa: T201
