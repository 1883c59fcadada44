"""Programs in Go that tests run: built once, into a folder of the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path


def cache_folder() -> Path:
    """Where programs are that the tests have built."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl" / "bin"


def install(package: str) -> None:
    """Build a program into the cache folder, statically linked, so that it also is an image for tests/cluster.

    Args:
        package: its import path and version, as ``go install`` takes them.

    Raises:
        CalledProcessError: it can't be built.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", "install", package],
        env=os.environ | {"GOBIN": str(folder), "CGO_ENABLED": "0"},
        stderr=subprocess.DEVNULL,
        check=True,
    )


def program(module: Path, folder: Path) -> Path:
    """Where ``build`` puts the program of the present state of a module's sources; it may not exist yet."""
    digest = hashlib.sha256()
    for path in sorted(path for path in module.iterdir() if path.suffix in {".go", ".mod", ".sum"}):
        digest.update(path.read_bytes())
    return folder / f"{module.name}-{digest.hexdigest()[:16]}" / module.name


def build(module: Path, package: str, folder: Path) -> Path:
    """The program of a package that belongs to, or is required by, a module; compiled if it does not exist.

    Args:
        folder: has a folder for the program of each state of the sources.

    Raises:
        RuntimeError: the compiler failed; its messages are in the terminal.
    """
    found = program(module, folder)
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(found), package]
        if subprocess.run(command, cwd=module, env=os.environ | {"CGO_ENABLED": "0"}, check=False).returncode:
            raise RuntimeError(f"Go could not compile {package} in {module}. Its messages are above.")
    return found
