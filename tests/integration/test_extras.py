"""What the README installs is enough for what it does next."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("elasticdl.master.main", "elasticdl.cli.main", "elasticdl.cli.kubernetes.listing")
KUBERNETES = ("kubernetes", "websocket")


def installed() -> set[str]:
    """The packages that the README's command installs, by name."""
    found = re.search(r"pip install '\.\[([a-z,]+)\]'", (ROOT / "README.md").read_text())
    assert found, "the README installs nothing"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in found[1].split(",") for one in project["optional-dependencies"][extra]]
    return {re.split(r"[<>=~!; \[]", each)[0] for each in [*project["dependencies"], *extras]}


def test_the_example_data_can_be_written() -> None:
    assert "scikit-learn" in installed()


def test_a_job_on_one_machine_needs_no_package_of_kubernetes() -> None:
    assert not installed() & {"kubernetes", "websocket-client"}
    for program in PROGRAMS:
        code = f"import sys; sys.modules.update(dict.fromkeys({KUBERNETES!r})); import {program}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
