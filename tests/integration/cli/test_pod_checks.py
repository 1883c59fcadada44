"""What ``elasticdl doctor`` checks from a pod, run in this process against real servers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.cli.kubernetes.checks import Finding
from elasticdl.cli.kubernetes.pod_checks import pod_findings
from elasticdl.shared.bus.server import NatsServer, find_executable

NOT_LISTENING = "nats://127.0.0.1:1"


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[str]:
    server = NatsServer(tmp_path / "nats")
    yield server.start()
    server.stop()


def findings(storage: Path, nats_url: str) -> tuple[Finding, Finding]:
    nats, storage_finding = pod_findings(f"file://{storage}", nats_url, "team")
    return nats, storage_finding


def test_servers_that_can_be_used_are_no_problem(nats: str, tmp_path: Path) -> None:
    server, storage = findings(tmp_path / "jobs", nats)
    assert (server.problem, server.detail) == ("", "with JetStream, messages up to 8 MiB")
    assert (storage.problem, storage.detail) == ("", f"file://{tmp_path}/jobs can be written")
    assert not (tmp_path / "jobs").exists()


def test_servers_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server, storage = findings(tmp_path / "file" / "jobs", NOT_LISTENING)
    assert "127.0.0.1:1" in server.problem and "kubectl edit secret elasticdl --namespace=team" in server.remedy
    assert storage.problem.startswith(f"file://{tmp_path}/file/jobs can't be written:")


def test_a_limit_of_messages_that_is_too_low_is_a_problem(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [find_executable(), "-js", "-sd", str(tmp_path / "data"), "-p", "-1", "-a", "127.0.0.1"], stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        lines = list(itertools.takewhile(lambda line: b"Server is ready" not in line, process.stderr))
        (address,) = [line.split()[-1].decode() for line in lines if b"Listening for client connections on" in line]
        server, _ = findings(tmp_path / "jobs", f"nats://{address}")
    finally:
        process.kill()
        process.communicate()
    assert server.problem == "it accepts messages of 1048576 bytes, and jobs need 8388608"


def test_the_pod_prints_each_finding_as_a_line(nats: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.cli.kubernetes.pod_checks", f"file://{tmp_path}/jobs", "team"],
        env={"ELASTICDL_NATS_URL": nats},
        capture_output=True,
        text=True,
        check=True,
    )
    nats_finding, storage, rights = (Finding(**json.loads(line)) for line in done.stdout.splitlines())
    assert (nats_finding.problem, storage.problem) == ("", "")
    assert rights.subject == "API server from a pod" and rights.problem  # This process is in no pod.
