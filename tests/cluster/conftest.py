"""The cluster of the tests: the one that ``KUBECONFIG`` names, else the node of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch
from tests.cluster import build, host, requirements
from tests.cluster.images import write_image
from tests.cluster.readiness import CTR
from tests.cluster.sites import IMAGES, REPOSITORY, Site

WATCH_LIMIT_S = 120
CONTAINER_FIELDS = {"args", "resources", "securityContext", "volumeMounts"}
NEEDS_NODE = "This test needs the node of tests/cluster. Unset KUBECONFIG."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster."""

    kubeconfig: Path
    core: Any
    """A ``CoreV1Api``. Its type declares every field of every answer as optional, which says nothing in a test."""
    site: Site | None
    """The node of this folder; None for a cluster that ``KUBECONFIG`` names."""

    def node_site(self) -> Site:
        """The site of the node; skips the test on another cluster."""
        if self.site is None:
            pytest.skip(NEEDS_NODE)
        return self.site

    def load_image(self, image: str, program: Path) -> None:
        """Make an image of a static program known to the node."""
        site = self.node_site()
        archive = image.replace("/", "-").replace(":", "-") + ".tar"
        write_image(site.folder / IMAGES.name / archive, image, program)
        self.import_archive(IMAGES / archive)

    def import_archive(self, archive: Path) -> None:
        """Make the image in an archive known to the node; the path is one inside the node."""
        command = host.inside(self.node_site(), *CTR, "images", "import", str(archive))
        subprocess.run(command, check=True, capture_output=True)

    def create_pod(self, namespace: str, name: str, image: str, **facts: Any) -> None:
        """Create a pod with one container.

        Args:
            namespace: Where.
            name: Name of the pod, and of its label ``app``.
            image: Image of the container.
            facts: Fields of the container, if they are in ``CONTAINER_FIELDS``; else fields of the pod's ``spec``.
        """
        container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
        container |= {field: facts.pop(field) for field in CONTAINER_FIELDS & facts.keys()}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **facts}
        self.core.create_namespaced_pod(
            namespace, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}, _request_timeout=30
        )

    def pod_events(self, namespace: str) -> Iterator[tuple[str, Any]]:
        """Type of the change, and pod, for every change in a namespace from its first pod on.

        Fails the test when nothing else has happened within ``WATCH_LIMIT_S``.
        """
        stream = watch.Watch().stream(self.core.list_namespaced_pod, namespace, timeout_seconds=WATCH_LIMIT_S)
        seen = []
        for event in stream:
            pod = event["object"]
            seen.append(f"{event['type']} {pod.metadata.name} {pod.status.phase}")
            yield event["type"], pod
        pytest.fail(f"The pods did not get into the expected state. Events: {seen}")

    def wait_for_phase(self, namespace: str, name: str, *phases: str) -> Any:
        """The pod, once its phase is one of ``phases``."""
        return next(
            pod for _, pod in self.pod_events(namespace) if pod.metadata.name == name and pod.status.phase in phases
        )


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster. The node of this folder is taken down at the end if it did not run before."""
    if other := other_kubeconfig():
        yield _connect(other, None)
        return
    skip_if_something_is_missing()
    site = Site()
    ran_before = host.is_running(site)
    run_command("up")
    try:
        yield _connect(site.kubeconfig, site)
    finally:
        if not ran_before:
            run_command("down")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace in which pods can be created; deleted after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.core.create_namespace({"metadata": {"name": name}})
    accounts = watch.Watch()
    # The API server accepts no pods before their service account exists.
    for _ in accounts.stream(cluster.core.list_namespaced_service_account, name, timeout_seconds=WATCH_LIMIT_S):
        accounts.stop()
    yield name
    cluster.core.delete_namespace(name)


def other_kubeconfig() -> Path | None:
    """What ``KUBECONFIG`` names, unless it is the node of this folder."""
    given = os.environ.get("KUBECONFIG")
    return Path(given) if given and Path(given) != Site().kubeconfig else None


def skip_if_something_is_missing() -> None:
    if lacking := requirements.missing(built=build.is_built()):
        pytest.skip(lacking)


def run_command(command: str, *arguments: str) -> None:
    """Run ``python -m tests.cluster COMMAND``; fails the test with its messages."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", command, *arguments],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _connect(kubeconfig: Path, site: Site | None) -> Cluster:
    api = config.new_client_from_config(config_file=str(kubeconfig))
    return Cluster(kubeconfig=kubeconfig, core=client.CoreV1Api(api), site=site)
