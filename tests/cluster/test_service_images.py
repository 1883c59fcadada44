"""The images of the services run in pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.requirements import missing_packages
from tests.cluster.service_images import PACKAGES, build_service_image, service_image
from tests.cluster.sites import IMAGES

from elasticdl.shared.process.exit_codes import EXIT_REFUSED

RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard ``restricted`` asks of a container, and a file system that is read-only."""


@pytest.mark.timeout(1800)  # the first build installs Debian and all dependencies
def test_the_image_of_a_ps_refuses_to_run_without_settings(cluster: Cluster, namespace: str) -> None:
    site = cluster.node_site()
    if lacking := missing_packages(PACKAGES):
        pytest.skip(lacking)
    build_service_image("ps", site.folder / IMAGES.name / "ps.tar")
    cluster.import_archive(IMAGES / "ps.tar")

    cluster.core.patch_namespace(
        namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    cluster.create_pod(
        namespace,
        "ps",
        service_image("ps"),
        restartPolicy="Never",
        securityContext=RESTRICTED,
        volumeMounts=[{"name": "temporary", "mountPath": "/tmp"}],
        volumes=[{"name": "temporary", "emptyDir": {}}],
    )
    pod = cluster.wait_for_phase(namespace, "ps", "Failed", "Succeeded")

    assert pod.status.container_statuses[0].state.terminated.exit_code == EXIT_REFUSED
    assert "ELASTICDL_NATS_URL is not set" in cluster.core.read_namespaced_pod_log("ps", namespace)
