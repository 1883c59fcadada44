"""The images of the services run in pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.conftest import Cluster
from tests.cluster.service_images import service_image

from elasticdl.shared.process.exit_codes import EXIT_REFUSED

RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard ``restricted`` asks of a container, and a file system that is read-only."""


@pytest.mark.timeout(900)  # to load the image of a worker takes long on a busy machine
@pytest.mark.usefixtures("service_images")
def test_the_image_of_a_ps_refuses_to_run_without_settings(cluster: Cluster, namespace: str) -> None:

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
