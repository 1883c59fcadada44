"""A kwok cluster and a NATS server for each test."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster import build
from tests.cluster.kwok.control_plane import ControlPlane, control_plane

from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.kubernetes.api import KubernetesApi

NODE_AMOUNTS = {"cpu": "64", "memory": "512Gi", "pods": "110"}

AddNodes = Callable[[int, Mapping[str, str]], None]
"""(number of nodes, what each of them has besides ``NODE_AMOUNTS``)."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    if not (build.is_built() and build.kwok().exists()):
        pytest.skip("Kubernetes or kwok is not compiled yet, which takes minutes. Run: make test-cluster")
    if lacking := [each for each in ("openssl", "setpriv") if not shutil.which(each)]:
        pytest.skip(f"The kwok cluster needs {' and '.join(lacking)}.")
    with control_plane(tmp_path, build.binaries() / "node", build.kwok()) as plane:
        yield plane


@pytest.fixture
def add_nodes(plane: ControlPlane) -> Iterator[AddNodes]:
    """Adds nodes to the cluster."""
    with contextlib.closing(KubernetesApi.connect(kubeconfig=str(plane.kubeconfig()))) as api:

        def add(count: int, amounts: Mapping[str, str]) -> None:
            status = dict.fromkeys(("allocatable", "capacity"), NODE_AMOUNTS | dict(amounts))
            for number in range(count):
                metadata = {"name": f"node-{number}"}
                api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

        yield add


@pytest.fixture
def nats_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a NATS server."""
    server = NatsServer(tmp_path / "nats")
    try:
        yield server.start()
    finally:
        server.stop()
