"""NATS' command line for tests, where it is installed or can be built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.contract.servers.s3 import cache_folder

VERSION = "v0.1.5"
"""Of the Go module ``github.com/nats-io/natscli``."""


def binary() -> Path | None:
    """The program on PATH, in the cache folder or in Go's own; None: there is none."""
    known = [shutil.which("nats"), cache_folder() / "nats", Path.home() / "go" / "bin" / "nats"]
    return next((Path(each) for each in known if each and Path(each).exists()), None)


def provide() -> bool:
    """Build it once, which takes some minutes; False: there is no Go on this machine."""
    if binary():
        return True
    if not shutil.which("go"):
        return False
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["go", "install", f"github.com/nats-io/natscli/nats@{VERSION}"],
        env=os.environ | {"GOBIN": str(folder), "CGO_ENABLED": "0"},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return True


if __name__ == "__main__":
    sys.exit("" if provide() else "there is no Go on this machine to build NATS' command line with")
