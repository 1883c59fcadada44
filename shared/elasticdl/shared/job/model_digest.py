"""Digests of a model file and of the modules that it imports, so that a resume detects edits."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path


def file_digests(model: Path) -> dict[str, str]:
    """SHA-256 of the model file and of every module in its folder that it imports, directly or through another.

    Returns:
        File name relative to the model's folder -> hex digest.
    """
    return _digests(model.parent, [model])


def imported_files(model: Path, folder: Path) -> list[str]:
    """The modules in a folder, by relative name, that a file outside of it imports, directly or through another."""
    return [*_digests(folder, [file for module in _imports(model.read_bytes()) for file in _files(folder, module)])]


def _digests(folder: Path, waiting: list[Path]) -> dict[str, str]:
    digests: dict[str, str] = {}
    while waiting:
        file = waiting.pop()
        name = str(file.relative_to(folder))
        if name in digests:
            continue
        content = file.read_bytes()
        digests[name] = hashlib.sha256(content).hexdigest()
        for module in _imports(content):
            waiting += _files(folder, module)
    return dict(sorted(digests.items()))


def combined(digests: Mapping[str, str]) -> str:
    """One digest for all files."""
    lines = (f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of files that were edited, removed or added, sorted."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _imports(content: bytes) -> Iterator[str]:
    """Top-level names of the modules that some Python source imports."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return  # The error shows when the model is loaded; here only the content matters.
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]
            case ast.ImportFrom(names=aliases):  # from . import sibling
                yield from (alias.name for alias in aliases)
            case _:
                pass


def _files(folder: Path, module: str) -> list[Path]:
    """The file of a module in ``folder``, all files of a package, or nothing."""
    file = folder / f"{module}.py"
    if file.is_file():
        return [file]
    package = folder / module
    return sorted(package.rglob("*.py")) if (package / "__init__.py").is_file() else []
