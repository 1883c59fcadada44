"""Compile the programs of the node, once for each state of their sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.sites import cache_folder
from tests.contract.servers import go_programs

SOURCES = Path(__file__).resolve().parent / "node"
OBEDIENT = SOURCES.with_name("obedient")
KWOK = SOURCES.with_name("kwok")
KWOK_PACKAGE = "sigs.k8s.io/kwok/cmd/kwok"
COMPILE_LIMIT_S = 2400


def binaries() -> Path:
    """The folder of the compiled programs ``node`` and ``pod``; it does not exist before they are built."""
    digest = hashlib.sha256("\0".join(_flags()).encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.suffix in {".go", ".mod", ".sum"}):
        digest.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes() + b"\0")
    return cache_folder() / f"bin-{digest.hexdigest()[:16]}"


def is_built() -> bool:
    return binaries().exists()


def build() -> Path:
    """The folder of :func:`binaries`. Compiles for minutes if it does not exist.

    Raises:
        RuntimeError: the compiler failed; its messages are in the terminal.
    """
    folder = binaries()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            print("Compiling Kubernetes for the test cluster. This takes about 10 minutes, once.", flush=True)  # noqa: T201
            _compile_into(folder)
            for old in folder.parent.glob("bin-*"):
                if old != folder:
                    shutil.rmtree(old)
    return folder


def build_obedient() -> Path:
    """The program of ``obedient``, compiled if it does not exist; takes a second."""
    return go_programs.build(OBEDIENT, ".", cache_folder())


def build_kwok() -> Path:
    """The program kwok of the version in ``kwok/go.mod``, compiled if it does not exist; takes minutes."""
    return go_programs.build(KWOK, KWOK_PACKAGE, cache_folder())


def kwok() -> Path:
    """The program kwok; it does not exist before it is built."""
    return go_programs.program(KWOK, cache_folder())


def _compile_into(folder: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix="compiling-", dir=folder.parent))
    try:
        command = ["go", "build", *_flags(), "-o", f"{partial}/", ".", "./pod"]
        environment = os.environ | {"CGO_ENABLED": "0"}
        if subprocess.run(command, cwd=SOURCES, env=environment, check=False, timeout=COMPILE_LIMIT_S).returncode:
            raise RuntimeError(f"Go could not compile the test cluster in {SOURCES}. Its messages are above.")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _flags() -> list[str]:
    """Flags of ``go build``. Clients ask the API server for its version, which Go takes from the linker only."""
    found = re.search(r"k8s.io/kubernetes (v(\d+)\.(\d+)\.\d+)", (SOURCES / "go.mod").read_text())
    assert found, "go.mod does not require k8s.io/kubernetes"
    facts = {"gitVersion": found[1], "gitMajor": found[2], "gitMinor": found[3]}
    stamps = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items()]
    return ["-trimpath", "-ldflags", " ".join(["-s", "-w", *stamps])]
