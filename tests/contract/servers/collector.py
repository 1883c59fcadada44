"""A real OpenTelemetry collector for tests, built from the modules in ``otelcol``: OTLP over HTTP in, a file out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.contract.servers import go_programs
from tests.contract.servers.s3 import end, free_port

SOURCES = Path(__file__).with_name("otelcol")
START_LIMIT_S = 120
END_LIMIT_S = 20


@dataclass(slots=True, kw_only=True)
class Collected:
    """What a collector received; empty until it has ended.

    Attributes:
        address: where it takes OTLP.
        requests: its traces, each as ``ExportTraceServiceRequest`` in JSON.
    """

    address: str
    requests: list[dict[str, Any]] = field(default_factory=list)


def binary() -> Path | None:
    """The program in the cache folder; None: it is not built."""
    found = go_programs.program(SOURCES, go_programs.cache_folder())
    return found if found.exists() else None


@contextmanager
def collector(program: Path, folder: Path) -> Iterator[Collected]:
    """Run a collector that writes into ``folder``. It has written everything when this ends."""
    address, received, log = f"127.0.0.1:{free_port()}", folder / "received.json", folder / "collector.log"
    configuration = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"file": {"path": str(received)}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
        },
    }
    (folder / "collector.yaml").write_text(yaml.safe_dump(configuration))
    with log.open("wb") as output:
        command = [str(program), f"--config=file:{folder / 'collector.yaml'}"]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    found = Collected(address=f"http://{address}")
    try:
        _wait_until_ready(process, found.address, log)
        yield found
    finally:
        end(process, END_LIMIT_S)
    found.requests += map(json.loads, received.read_text().splitlines())


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10):
                return
        except urllib.error.HTTPError:  # It answers: there is nothing at that path.
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # polling another process, which has no event to wait for
    raise RuntimeError(f"The collector did not start: {log.read_text(errors='replace')[-2000:]}")


def provide() -> bool:
    """Build it once, which takes minutes; False: there is no Go on this machine."""
    if not shutil.which("go"):
        return binary() is not None
    go_programs.build(SOURCES, ".", go_programs.cache_folder())
    return True


if __name__ == "__main__":
    sys.exit(None if provide() else "there is no Go on this machine to build the collector with")
