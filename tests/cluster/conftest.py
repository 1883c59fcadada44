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
from tests.cluster import build, host, kustomize, requirements
from tests.cluster.deployment import BUCKET, Deployment, delete, deploy
from tests.cluster.images import write_image
from tests.cluster.preparation import SERVICES
from tests.cluster.readiness import CTR
from tests.cluster.scenarios.command_line import CommandLine
from tests.cluster.scenarios.timeline import milli_cpus
from tests.cluster.service_images import is_built, provide_service_image
from tests.cluster.sites import IMAGES, REPOSITORY, Site
from tests.contract.servers.s3 import minio_binary

from elasticdl.shared.storage import open_store

WATCH_LIMIT_S = 120
CONTAINER_FIELDS = {"args", "command", "envFrom", "resources", "securityContext", "volumeMounts"}
CLICK_RECORDS = 20_000
NEEDS_IMAGES = "This test needs images of the services. Run: make test-cluster"
NEEDS_KUSTOMIZE = "This test needs kustomize. Run: make test-cluster"
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

    def free_milli_cpus(self) -> int:
        """What pods of jobs can request, in thousandths of a CPU: what the node has, without what runs on it."""
        (node,) = self.core.list_node().items
        pods = self.core.list_pod_for_all_namespaces().items
        alive = [pod for pod in pods if pod.status.phase in ("Pending", "Running")]
        present = [pod for pod in alive if pod.metadata.deletion_timestamp is None]
        requests = [each.resources.requests or {} for pod in present for each in pod.spec.containers]
        return milli_cpus([node.status.allocatable["cpu"]]) - milli_cpus(each.get("cpu", "0") for each in requests)

    def load_image(self, image: str, program: Path, entry_point: str = "") -> None:
        """Make an image of a static program known to the node, see ``write_image``."""
        site = self.node_site()
        archive = image.replace("/", "-").replace(":", "-") + ".tar"
        write_image(site.folder / IMAGES.name / archive, image, program, entry_point)
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
    if error := attempt_command("up"):
        pytest.skip(f"The test cluster does not start on this machine: {error}")
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


@pytest.fixture(scope="session")
def elasticdl_namespace(cluster: Cluster) -> Iterator[Deployment]:
    """A namespace with NATS, object storage and everything else that jobs need; deleted at the end."""
    site = cluster.node_site()
    if not kustomize.is_provided():
        pytest.skip(NEEDS_KUSTOMIZE)
    if minio_binary() is None:
        pytest.skip("MinIO is needed. Build it: make s3-server")
    name = f"elasticdl-{uuid.uuid4().hex[:8]}"
    try:
        yield deploy(site, name)
    finally:
        delete(site, name)


@pytest.fixture(scope="session")
def service_images(cluster: Cluster) -> None:
    """The images of master, ps and worker as the sources are now, known to the node."""
    site = cluster.node_site()
    for service in SERVICES:
        if not is_built(service):
            pytest.skip(NEEDS_IMAGES)
        provide_service_image(site, service)


@pytest.fixture(scope="session")
def click_data(cluster: Cluster, elasticdl_namespace: Deployment, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a folder in the bucket with ``train`` and ``test`` records for the model ``deepfm``."""
    folder = tmp_path_factory.mktemp("clicks")
    command_line = CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=folder)
    command_line.run("zoo", "data", "deepfm", str(folder), f"--records={CLICK_RECORDS}")
    uri = f"s3://{BUCKET}/clicks"
    store = open_store(uri, elasticdl_namespace.storage())
    for path in folder.rglob("*.parquet"):
        store.write(f"{uri}/{path.relative_to(folder)}", path)
    return uri


def other_kubeconfig() -> Path | None:
    """What ``KUBECONFIG`` names, unless it is the node of this folder."""
    given = os.environ.get("KUBECONFIG")
    return Path(given) if given and Path(given) != Site().kubeconfig else None


def skip_if_something_is_missing() -> None:
    if lacking := requirements.missing(built=build.is_built()):
        pytest.skip(lacking)
    if not build.is_built():
        pytest.skip("The test cluster is not compiled yet, which takes minutes. Run: make test-cluster")


def run_command(command: str, *arguments: str) -> None:
    """Run ``python -m tests.cluster COMMAND``; fails the test with its messages."""
    error = attempt_command(command, *arguments)
    assert not error, error


def attempt_command(command: str, *arguments: str) -> str:
    """Run ``python -m tests.cluster COMMAND``; returns its messages if it fails, else nothing.

    It is a process of its own, because it leaves the node running.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", command, *arguments],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return f"{done.stderr.strip()} (exit code {done.returncode})" if done.returncode else ""


def _connect(kubeconfig: Path, site: Site | None) -> Cluster:
    api = config.new_client_from_config(config_file=str(kubeconfig))
    return Cluster(kubeconfig=kubeconfig, core=client.CoreV1Api(api), site=site)


@pytest.fixture
def user(cluster: Cluster, elasticdl_namespace: Deployment, tmp_path: Path) -> CommandLine:
    """A user who submits jobs to a namespace in which everything is prepared."""
    return CommandLine(kubeconfig=cluster.kubeconfig, namespace=elasticdl_namespace.namespace, folder=tmp_path)
