"""Prints pip constraints: each dependency of pyproject.toml in its lowest version, test tools as in constraints.txt."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUND = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\w.]+)")


def lowest() -> Iterator[str]:
    """Yield ``name==version`` for every dependency and every tool that the tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_extras = [line for name in ("master", "ps", "worker", "examples") for line in extras[name]]
    names = set()
    for line in [*project["dependencies"], *of_extras]:
        if not (found := BOUND.match(line)):
            sys.exit(f"{line!r} in pyproject.toml has no lower bound")
        names.add(found["name"].lower())
        yield f"{found['name']}=={found['version']}"
    tools = {re.split(r"[^\w.-]", line)[0].lower() for line in extras["dev"]} - names
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.split("==")[0].lower().replace("_", "-") in tools:
            yield line


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in dict.fromkeys(lowest()))
