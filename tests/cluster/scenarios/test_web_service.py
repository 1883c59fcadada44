"""A web service grows and shrinks on a cluster where a job trains with whatever is left."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from kubernetes import client
from tests.cluster.conftest import Cluster
from tests.cluster.scenarios.cluster_jobs import OVERHEAD_M, ClusterJobs
from tests.cluster.scenarios.conftest import RESULTS, Note
from tests.cluster.scenarios.plots import CPU_M, plot_held_cpus
from tests.cluster.scenarios.timeline import Recorder, Timeline
from tests.cluster.sites import POD_IMAGE
from tests.cluster.test_service_images import RESTRICTED

SERVICE = "web"
WORKER_M = 2 * CPU_M
"""Request of a worker; a pod of the service requests ``CPU_M``."""
STEPS = (3, 8, 14, 8, 3)
"""Pods of the service, one number after the other."""
EPOCHS = 32


class WebService:
    """A Deployment of pods that only wait.

    Args:
        cluster: where.
        namespace: where.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._apps: Any = client.AppsV1Api(cluster.core.api_client)
        self._namespace = namespace

    def create(self) -> None:
        """Create it without pods."""
        labels = {"app": SERVICE}
        container = {
            "name": "main",
            "image": POD_IMAGE,
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": f"{CPU_M}m"}},
            "securityContext": RESTRICTED,
        }
        spec = {
            "containers": [container],
            "priorityClassName": "elasticdl-high",
            "terminationGracePeriodSeconds": 5,
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        self._apps.create_namespaced_deployment(
            self._namespace,
            {
                "metadata": {"name": SERVICE},
                "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
            },
        )

    def scale(self, pods: int) -> None:
        """Let it have so many pods."""
        self._apps.patch_namespaced_deployment_scale(SERVICE, self._namespace, {"spec": {"replicas": pods}})


@pytest.mark.bench_cluster
@pytest.mark.timeout(1800)
def test_a_web_service_gets_its_pods_and_training_uses_the_rest(
    cluster: Cluster, jobs: ClusterJobs, recorder: Recorder, free_milli_cpus: int, note: Note
) -> None:
    web = WebService(cluster, recorder.namespace)
    web.create()
    all_workers = (free_milli_cpus - OVERHEAD_M) // WORKER_M
    jobs.start("patient", workers=all_workers, worker_m=WORKER_M, epochs=EPOCHS)
    job = jobs.wait_for_workers("patient", all_workers)
    full_s = time.time()

    for pods in STEPS:
        scaled_s = time.time()
        web.scale(pods)
        rest = (free_milli_cpus - OVERHEAD_M - pods * CPU_M) // WORKER_M
        jobs.wait_until(partial(_has_settled, job, pods, rest), f"{pods} pods of the service and {rest} workers run")
        timeline = recorder.timeline()
        pods_s = timeline.settled_s(SERVICE, "", after_s=scaled_s)
        workers_s = timeline.settled_s(job, "worker", after_s=scaled_s)
        note(pods=pods, workers=rest, pods_after_s=pods_s - scaled_s, workers_after_s=workers_s - scaled_s)
    settled_s = time.time()
    jobs.wait_for_exact_end(job)

    timeline = recorder.timeline()
    plot_held_cpus(timeline, {SERVICE: "web service", job: "training"}, free_milli_cpus, RESULTS / "web-service.svg")
    note(requested_share=timeline.mean_bound([SERVICE, job], full_s, settled_s) / free_milli_cpus)


def _has_settled(job: str, pods: int, workers: int, timeline: Timeline) -> bool:
    """Whether the service has its pods, and the job at least so many workers."""
    return timeline.running_at(SERVICE, "") == pods and timeline.running_at(job, "worker") >= workers
