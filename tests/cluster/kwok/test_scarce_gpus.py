"""Jobs that ask for more GPUs than there are train on those that there are."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.kwok.conftest import AddNodes
from tests.cluster.kwok.control_plane import ControlPlane
from tests.cluster.kwok.simulated_job import IMAGE, JobSize, SimulatedJob, simulated_job

from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.messages.events import PodPending, ScaleRequested

GPU = "nvidia.com/gpu"
GPUS = 8
TASKS = 5
"""Finished tasks of a worker that show that it trains."""


def size(workers: int) -> JobSize:
    return JobSize(workers=workers, resources=f"cpu=4,memory=8Gi,{GPU}=1", task_s=0.2)


async def all_train(job: SimulatedJob, workers: int) -> None:
    """Wait until so many workers run and each of them has finished tasks."""
    await job.until(
        lambda: len(job.workers) == workers and all(worker.totals.finished >= TASKS for worker in job.workers.values()),
        f"{workers} workers train",
    )


async def test_the_last_worker_takes_a_gpu_when_it_is_free(
    plane: ControlPlane, add_nodes: AddNodes, nats_url: str, tmp_path: Path
) -> None:
    add_nodes(GPUS, {GPU: "1"})
    async with simulated_job(plane, nats_url, tmp_path, "grows-1", size(GPUS)) as job:
        job.api.create(pod_with_gpu("other"))
        await job.until(lambda: has_node(job, "other"), "the other pod has a GPU")
        await job.start()
        await all_train(job, GPUS - 1)
        pending = await job.record(lambda record: isinstance(record.envelope.event, PodPending))
        assert isinstance(pending.envelope.event, PodPending)
        assert f"Insufficient {GPU}" in pending.envelope.event.reason
        assert pending.envelope.event.pod not in job.workers

        job.api.delete(kinds.POD, "other")
        await all_train(job, GPUS)
        assert pending.envelope.event.pod in job.workers


async def test_two_jobs_that_want_more_than_half_of_the_gpus_train_at_the_same_time(
    plane: ControlPlane, add_nodes: AddNodes, nats_url: str, tmp_path: Path
) -> None:
    add_nodes(GPUS, {GPU: "1"})
    wanted = GPUS // 2 + 1
    async with (
        simulated_job(plane, nats_url, tmp_path, "first-1", size(wanted)) as first,
        simulated_job(plane, nats_url, tmp_path, "second-1", size(wanted)) as second,
    ):
        await first.start()
        await all_train(first, wanted)
        await second.start()
        await all_train(second, GPUS - wanted)

        first.publish(ScaleRequested(workers=GPUS - wanted))
        await all_train(second, wanted)
        await all_train(first, GPUS - wanted)


def has_node(job: SimulatedJob, pod: str) -> bool:
    return bool(job.api.get(kinds.POD, pod)["spec"].get("nodeName"))


def pod_with_gpu(name: str) -> Manifest:
    container = {"name": "main", "image": IMAGE, "resources": {"limits": {GPU: "1"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
