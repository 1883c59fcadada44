"""The images compile the kernels from a few files, before the rest of the code is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = re.compile(r"^COPY (\S+) /opt/elasticdl/code/(elasticdl/\S+)$", re.MULTILINE)


def copied(dockerfile: str) -> dict[str, Path]:
    """Module -> file of what is copied before the kernels are compiled."""
    modules: dict[str, Path] = {}
    for pattern, target in COPIED.findall((ROOT / "deploy/images" / dockerfile).read_text()):
        for found in ROOT.glob(pattern):
            files = sorted(found.glob("*.py")) if found.is_dir() else [found]
            modules |= {f"{target.rstrip('/').replace('/', '.')}.{file.stem}": file for file in files}
    return modules


def imported(file: Path) -> set[str]:
    """Modules of the product that a file imports, at its beginning or later."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    return {node.module for node in nodes if node.module and node.module.startswith("elasticdl.")}


@pytest.mark.parametrize("dockerfile", ["ps.Dockerfile", "worker.Dockerfile"])
def test_kernels_import_only_what_is_copied_before_they_are_compiled(dockerfile: str) -> None:
    modules = copied(dockerfile)
    assert modules
    packages = {name.removesuffix(".__init__") for name in modules}
    missing = {name: wanted for name, file in modules.items() if (wanted := imported(file) - packages)}
    assert missing == {}


def test_all_kernels_of_a_service_are_copied_and_compiled() -> None:
    """One that is not would be compiled at the start of every pod."""
    folders = {"ps.Dockerfile": ["shared/elasticdl/shared/model", "services/ps"]}
    folders["worker.Dockerfile"] = ["shared/elasticdl/shared/model", "shared/elasticdl/shared/data", "services/worker"]
    for dockerfile, places in folders.items():
        files = {file for place in places for file in (ROOT / place).rglob("*.py")}
        kernels = {file for file in files if re.search(r"^@(kernel|inlined)\b", file.read_text(), re.MULTILINE)}
        assert kernels
        assert kernels - set(copied(dockerfile).values()) == set()
        assert "compile_kernels.py /opt/elasticdl/code" in (ROOT / "deploy/images" / dockerfile).read_text()
