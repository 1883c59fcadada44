"""NATS' command line for tests, where it is installed or can be built."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.contract.servers.go_programs import cache_folder, install

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
    install(f"github.com/nats-io/natscli/nats@{VERSION}")
    return True


if __name__ == "__main__":
    sys.exit(None if provide() else "there is no Go on this machine to build NATS' command line with")
