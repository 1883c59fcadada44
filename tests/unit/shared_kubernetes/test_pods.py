"""``KubernetesPods`` when requests and answers arrive in an unlucky order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.deadline import DEADLINE_S
from tests.unit.shared_kubernetes.memory_api import MemoryApi
from tests.unit.shared_kubernetes.test_pod_manifests import job

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.job_pods import creation_seq_of
from elasticdl.shared.kubernetes.names import POD_LABEL
from elasticdl.shared.kubernetes.pod_manifests import pod_manifest
from elasticdl.shared.kubernetes.pods import KubernetesPods
from elasticdl.shared.kubernetes.quantities import parse_bytes
from elasticdl.shared.kubernetes.refusals import ApiRefusedError, Request
from elasticdl.shared.names import NO_INSTANCE, PodName, Service
from elasticdl.shared.pods.ports import Ended, Pending

WORKER = PodName("worker-0")
CREATION = Request(verb="create", kind=kinds.POD)
NO_QUOTA = ApiRefusedError(CREATION, status=403, reason="Forbidden", detail="exceeded quota: small")


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
async def pods(api: MemoryApi) -> AsyncIterator[KubernetesPods]:
    pods = KubernetesPods(api, job(), quota_retry_s=0.0)
    yield pods
    pods.close()


async def until_empty(api: MemoryApi) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while api.objects:
            await asyncio.sleep(0)


async def test_a_pod_that_is_deleted_while_it_is_being_created_does_not_stay(
    api: MemoryApi, pods: KubernetesPods
) -> None:
    api.refusals = [NO_QUOTA]
    await pods.create(WORKER, Service.WORKER, 3)
    api.is_asked.clear()
    api.may_create.clear()
    assert await asyncio.to_thread(api.is_asked.wait, DEADLINE_S)
    await pods.delete(WORKER, NO_INSTANCE, 5, kill=True)
    api.may_create.set()
    async with asyncio.timeout(DEADLINE_S):
        while not api.objects:
            await asyncio.sleep(0)
    await until_empty(api)
    (status,) = await pods.list()
    assert isinstance(status.phase, Ended)


async def test_a_late_pod_of_an_earlier_order_is_removed(api: MemoryApi, pods: KubernetesPods) -> None:
    await pods.list()
    created = await pods.create(WORKER, Service.WORKER, 5)
    late = api.appear(pod_manifest(job(), WORKER, Service.WORKER, 3))
    async with asyncio.timeout(DEADLINE_S):
        while late["metadata"]["name"] in api.objects:
            await asyncio.sleep(0)
    assert await pods.list() == (created,)
    assert len(api.objects) == 1


async def test_an_order_that_waits_for_quota_outlives_every_error(api: MemoryApi, pods: KubernetesPods) -> None:
    api.refusals = [NO_QUOTA, PermanentError("the certificate is not accepted"), NO_QUOTA]
    waiting = await pods.create(WORKER, Service.WORKER, 3)
    assert waiting.phase == Pending(reason="exceeded quota: small")
    async with asyncio.timeout(DEADLINE_S):
        while not api.objects:
            await asyncio.sleep(0)


async def test_all_pods_of_a_service_get_more_memory_after_one_of_them_ran_out_of_it(
    api: MemoryApi, pods: KubernetesPods
) -> None:
    """New pods of other names, too; those of another service do not."""

    def limit(name: str) -> str:
        made = max(
            (each for each in api.objects.values() if each["metadata"]["labels"][POD_LABEL] == name),
            key=creation_seq_of,
        )
        return str(made["spec"]["containers"][1]["resources"]["limits"]["memory"])

    other, killed = PodName("worker-1"), {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    creation_seq = 1
    for raised in ("6144Mi", "9216Mi", "13824Mi"):
        for name in (WORKER, other):  # Both run out of the same memory: that is one raise, not two.
            await pods.create(name, Service.WORKER, creation_seq)
        for made in api.objects.values():
            made["status"] = {"phase": "Failed", "containerStatuses": [{"name": "worker", "state": killed}]}
        ends = [status.phase for status in await pods.list()]
        assert all(isinstance(end, Ended) and end.next_memory_limit_bytes == parse_bytes(raised) for end in ends)
        creation_seq += 1
    await pods.create(WORKER, Service.WORKER, creation_seq)
    assert limit("worker-0") == "13824Mi"
    await pods.create(PodName("worker-7"), Service.WORKER, creation_seq)
    await pods.create(PodName("ps-0"), Service.PS, creation_seq)
    assert (limit("worker-7"), limit("ps-0")) == ("13824Mi", "4Gi")
    for made in api.objects.values():
        made["status"] = {"phase": "Failed", "containerStatuses": [{"name": "worker", "state": killed}]}
    last = {status.pod: status.phase for status in await pods.list()}[WORKER]
    assert isinstance(last, Ended)
    assert (last.memory_limit_bytes, last.next_memory_limit_bytes) == (13824 << 20, 0)
