"""The Job of ``elasticdl doctor``: its pod starts all images, and uses the servers that the pods of jobs use."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.cli.kubernetes.manifests.one_time_job import one_time_job
from elasticdl.cli.kubernetes.manifests.resources import Resources
from elasticdl.cli.kubernetes.manifests.templates import USER_ID, PodSettings, bare_container, bare_pod
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import SERVICE_ACCOUNT
from elasticdl.shared.names import Service

PURPOSE = "doctor"
MODULE = "elasticdl.cli.kubernetes.pod_checks"
_RESOURCES = Resources(
    requests={"cpu": "10m", "memory": "128Mi"},
    limits={"cpu": "1", "memory": "512Mi"},
)


def check_job(
    namespace: str,
    suffix: str,
    images: dict[Service, str],
    storage: str,
    pull_secrets: Sequence[str] = (),
    user: int | None = USER_ID,
) -> Manifest:
    """The Job; the worker's image runs the checks, and the other ``images`` are only started."""
    settings = {
        service: PodSettings(service=service, image=image, resources=_RESOURCES) for service, image in images.items()
    }
    worker = settings.pop(Service.WORKER)
    checks = bare_container(Service.WORKER.value, ["-P", "-m", MODULE, storage, namespace], worker)
    pod = bare_pod(checks, pull_secrets, user)
    pod |= {"serviceAccountName": SERVICE_ACCOUNT, "automountServiceAccountToken": True}
    pod["initContainers"] = [bare_container(name.value, ["-c", "pass"], each) for name, each in settings.items()]
    return one_time_job(f"elasticdl-{PURPOSE}-{suffix}", namespace, PURPOSE, pod)
