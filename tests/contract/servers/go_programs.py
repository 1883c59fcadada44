"""Programs in Go that tests run: built once, into a folder of the user's cache."""

from __future__ import annotations

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
