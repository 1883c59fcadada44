"""A real Prometheus and its ``promtool`` for tests, where they are installed or can be had from Debian's package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.servers.go_programs import cache_folder
from tests.contract.servers.s3 import end, free_port

START_LIMIT_S = 120
_PROGRAMS = ("prometheus", "promtool")


def binaries() -> Path | None:
    """The folder of both programs: that on PATH, or the cache folder; None: there is none."""
    folders = [Path(found).parent for found in [shutil.which("promtool")] if found]
    return next(
        (each for each in (*folders, cache_folder()) if all((each / name).exists() for name in _PROGRAMS)), None
    )


@contextmanager
def prometheus_server(programs: Path, configuration: Path, folder: Path) -> Iterator[str]:
    """Run a server that keeps its data in ``folder``; its address."""
    log, address = folder / "prometheus.log", f"127.0.0.1:{free_port()}"
    command = [str(programs / "prometheus"), f"--config.file={configuration}", f"--web.listen-address={address}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=output, stderr=output, cwd=folder
        )
    try:
        _wait_until_ready(process, f"http://{address}", log)
        yield f"http://{address}"
    finally:
        end(process, 20)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/-/ready", timeout=10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # polling another process, which has no event to wait for
    raise RuntimeError(f"Prometheus did not start: {log.read_text(errors='replace')[-2000:]}")


def get(address: str, path: str) -> Any:
    """The data of an answer of the server's API."""
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as response:
        answer = json.load(response)
    assert answer["status"] == "success", answer
    return answer["data"]


def ask(address: str, query: str) -> list[Any]:
    """The result of a query; one that is not valid is an error."""
    found: list[Any] = get(address, f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")["result"]
    return found


def wait_for(address: str, query: str) -> None:
    """Until a query has a result: the server scrapes at its own pace."""
    deadline = time.monotonic() + START_LIMIT_S
    while not ask(address, query):
        assert time.monotonic() < deadline, get(address, "/api/v1/targets")
        time.sleep(0.2)  # polling another process, which has no event to wait for


def evaluated_rules(address: str) -> list[Any]:
    """The rules of the first group, once the server has evaluated each of them."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        rules: list[Any] = get(address, "/api/v1/rules")["groups"][0]["rules"]
        if all(rule["health"] != "unknown" for rule in rules):
            return rules
        assert time.monotonic() < deadline, rules
        time.sleep(0.2)  # polling another process, which has no event to wait for


def provide() -> bool:
    """Unpack Debian's package into the cache folder, without installing it; False: this machine has no apt."""
    if binaries():
        return True
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return False
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, capture_output=True)
        package = next(Path(folder).glob("prometheus_*.deb"))
        subprocess.run(["dpkg", "-x", str(package), folder], check=True)
        for name in _PROGRAMS:
            found = cache_folder() / f"{name}.{os.getpid()}"
            shutil.copy2(Path(folder) / "usr/bin" / name, found)
            found.replace(cache_folder() / name)
    return True


if __name__ == "__main__":
    sys.exit(None if provide() else "There is no Prometheus. Install prometheus and promtool, so that PATH has them.")
