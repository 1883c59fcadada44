"""The handle of a job on Kubernetes: its Job and its pods, its NATS server, and the logs that the API server has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from elasticdl.cli.jobs.handle import READ_INTERVAL_S, Condition, JobNotFoundError
from elasticdl.cli.kubernetes.condition import condition_of, is_preparing, latest
from elasticdl.cli.kubernetes.nats_route import reachable_url
from elasticdl.cli.kubernetes.pod_logs import KubernetesLogs
from elasticdl.shared.bus import Bus, nats_bus
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import JOB, POD, Manifest
from elasticdl.shared.kubernetes.names import PREPARE_CONTAINER, WAITING_PREFIX, labels, object_name, selector
from elasticdl.shared.names import JobId, Service


class KubernetesJobHandle:
    """See ``JobHandle``; ``is_default``: whether commands find the namespace without being told."""

    def __init__(self, api: KubernetesApi, job: JobId, *, is_default: bool) -> None:
        self.api = api
        self.job = job
        self.arguments = job if is_default else f"{job} --namespace={api.namespace}"
        self.logs = KubernetesLogs(api, job)

    def condition(self) -> Condition:
        """See ``JobHandle``."""
        masters = self.masters()
        condition = condition_of(self.job_object(), masters)
        waiting = condition.waiting or (self.waits_for(latest(masters)) if condition.is_running else "")
        return replace(condition, waiting=waiting)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Bus]:
        """See ``JobHandle``."""
        with contextlib.ExitStack() as stack:
            url = await asyncio.to_thread(stack.enter_context, reachable_url(self.api, object_name(self.job)))
            settings = BusSettings(read_interval_s=READ_INTERVAL_S)
            async with await nats_bus.connect(url, self.job, settings) as bus:
                yield bus

    def terminate(self) -> None:
        """See ``JobHandle``. Deletes the Job, and with it all pods."""
        self.api.delete(JOB, object_name(self.job))

    def job_object(self) -> Manifest:
        """The Job. Raises ``JobNotFoundError``: it is not there any more."""
        found = self.api.find(JOB, object_name(self.job))
        if found is None:
            raise JobNotFoundError(f"there is no job {self.job} in namespace {self.api.namespace} any more")
        return found

    def waits_for(self, master: Manifest | None) -> str:
        """What the container ``prepare`` of a master's pod waits for; empty: it does not, or the API server is away."""
        if master is None or not is_preparing(master):
            return ""
        try:
            log = self.api.log(master["metadata"]["name"], container=PREPARE_CONTAINER)
        except ElasticDLError:
            return ""
        _, prefix, text = log.rpartition(WAITING_PREFIX)
        return text.strip() if prefix else ""

    def masters(self) -> tuple[Manifest, ...]:
        """The pods of the Job."""
        return self.api.list(POD, labels=selector(labels(self.job, Service.MASTER))).items
